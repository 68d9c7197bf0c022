"""The search in a child process: its time limit is a wall clock, and what it has found survives it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bapipe.check import check
from bapipe.child import GRACE_S, POLL_S
from bapipe.errors import BaPipeError, SolverDisagreementError, TimeLimitError
from bapipe.examples.nasnet import nasnet_large
from bapipe.planner import Progress, plan, plan_isolated
from bapipe.presets import cluster_from_spec
from bapipe.problem import Link, PlanRequest
from judges.instances import cluster, layer, request
from judges.misbehaving import Delegate, Die, Hoard, Overclaim, Raise, SpinForEver


def asked(**changes: object) -> PlanRequest:
    layers = [layer(f"layer{k}", 1.0 + k % 3, 2.0 + k % 2, output_bytes_per_sample=8.0) for k in range(9)]
    return request(
        layers, cluster(3, Link(bandwidth_bytes_per_s=4.0)), 8, time_limit_s=1.0, schedules=("gpipe", "1f1b")
    ).model_copy(update={"objective": "bottleneck"} | changes)


@pytest.mark.parametrize("objective", ["step-time", "bottleneck"])
def test_a_child_answers_as_the_search_in_this_process_does(objective: str) -> None:
    wanted = asked(time_limit_s=60.0, objective=objective)
    isolated, direct = plan_isolated(wanted), plan(wanted)
    assert isolated.status == "optimal"
    assert isolated.stages == direct.stages
    assert isolated.schedule == direct.schedule
    assert isolated.baselines == direct.baselines


def test_a_formulation_that_spins_for_ever_still_gives_its_incumbent() -> None:
    answer = plan_isolated(asked(), formulation=SpinForEver())
    assert answer.status == "feasible"
    assert answer.prediction is not None
    assert check(answer) == []
    assert answer.proof.lower_bound_s is None or answer.proof.lower_bound_s <= answer.prediction.bottleneck_s


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
@pytest.mark.parametrize("stopped", [False, True])
def test_what_a_search_has_started_ends_with_it(stopped: bool, tmp_path: Path) -> None:
    note = tmp_path / "programs"
    answer = plan_isolated(
        asked(time_limit_s=60.0 if stopped else 1.0),
        formulation=Delegate(str(note)),
        should_stop=lambda: stopped and note.exists() and note.read_text().endswith("\n"),
    )
    assert answer.status == "feasible"
    programs = note.read_text().split()
    assert programs
    deadline = time.monotonic() + 30
    while any(_runs(program) for program in programs):
        assert time.monotonic() < deadline, "a program goes on"


def _runs(process: str) -> bool:
    """Whether a process is there, and not only waits for its end to be read."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_search_gets_less_than_a_second_beyond_its_limit() -> None:
    assert GRACE_S + 2 * POLL_S < 1


def test_a_stop_keeps_the_incumbent() -> None:
    stop = threading.Event()
    started = time.monotonic()

    def should_stop() -> bool:
        return stop.is_set()

    answer = plan_isolated(
        asked(time_limit_s=3600.0),
        on_progress=lambda progress: stop.set(),
        should_stop=should_stop,
        formulation=SpinForEver(),
    )
    assert answer.status == "feasible"
    assert time.monotonic() - started < 3600


def test_without_any_incumbent_it_says_so_rather_than_infeasible() -> None:
    too_small = cluster(3, memory_bytes=1)
    with pytest.raises(TimeLimitError, match="raise the time limit"):
        plan_isolated(asked(cluster=too_small), formulation=SpinForEver())


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "1f1b-so"])
def test_every_schedule_has_an_incumbent_before_a_formulation_is_asked(schedule: str) -> None:
    answer = plan_isolated(asked(schedules=(schedule,)), formulation=SpinForEver())
    assert answer.status == "feasible"
    assert answer.schedule is not None
    assert answer.schedule.name == schedule


@pytest.mark.parametrize(("formulation", "message"), [(Die(), "exit code 70"), (Raise(), "by the formulation")])
def test_what_a_child_found_survives_its_death_and_else_that_is_an_error(formulation: object, message: str) -> None:
    answer = plan_isolated(asked(), formulation=formulation)  # type: ignore[arg-type]
    assert answer.status == "feasible"
    assert message in answer.explanation[-1]
    with pytest.raises(BaPipeError, match=message):
        plan_isolated(asked(cluster=cluster(3, memory_bytes=1)), formulation=formulation)  # type: ignore[arg-type]


def test_a_disagreement_in_a_child_is_an_error_and_no_plan() -> None:
    with pytest.raises(SolverDisagreementError, match="overclaim says that nothing is below"):
        plan_isolated(asked(), formulation=Overclaim())


def large() -> PlanRequest:
    """More cuts than can be enumerated, and a model that takes a while to presolve."""
    cluster_of_eight = cluster_from_spec("8xV100-16G:pcie3")
    return PlanRequest(
        profile=nasnet_large(), cluster=cluster_of_eight, batch_size=16, objective="bottleneck", time_limit_s=3600.0
    )


def test_a_model_tells_better_plans_and_bounds_while_it_works_and_can_be_stopped_at_any_time() -> None:
    told: list[tuple[float | None, float | None]] = []

    def note(progress: Progress) -> None:
        told.append((progress.incumbent_s, progress.lower_bound_s))

    answer = plan_isolated(large(), on_progress=note, should_stop=lambda: len(told) > 8)

    plans = [incumbent_s for incumbent_s, _ in told if incumbent_s is not None]
    bounds = [bound_s for _, bound_s in told if bound_s is not None]
    assert plans == sorted(plans, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds
    assert (answer.status, answer.proof.solver) == ("feasible", "cp-sat")
    assert answer.proof.gap is not None
    assert check(answer) == []


def test_no_solver_library_is_imported_before_it_is_asked() -> None:
    program = """
import sys
from bapipe.planner import plan, validate
from bapipe.isolation import search_in_child
sys.path.insert(0, sys.argv[1])
from judges.instances import layer, request
plan(request([layer("a"), layer("b")], 2, 1, objective="bottleneck"))
plan(request([layer("a"), layer("b")], 2, 1))
print(*{"ortools", "pulp", "highspy", "pandas"} & set(sys.modules))
"""
    folder = str(Path(__file__).parent)
    ran = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_a_child_over_its_memory_limit_is_ended_and_keeps_its_incumbent() -> None:
    answer = plan_isolated(asked(time_limit_s=60.0), formulation=Hoard(), memory_limit_bytes=2 * 2**30)
    assert answer.status == "feasible"
    assert "needs more memory than its limit of 2147483648 bytes" in answer.explanation[-1]


def test_a_search_cut_short_claims_no_bound_over_cuts_that_it_did_not_search() -> None:
    wide = request(
        [layer(f"layer{k}", 1.0, 1.0) for k in range(22)], 3, 8, edges=(), time_limit_s=2.0, objective="bottleneck"
    )
    answer = plan_isolated(wide, formulation=SpinForEver())
    assert "cuts: topological-order" in answer.proof.scope_detail
    assert any("only cuts along one topological order" in warning for warning in answer.warnings)


def test_infeasible_is_said_even_when_there_is_no_time_to_explain_it() -> None:
    layers = [layer(f"layer{k}", 1.0, 1.0, parameter_bytes=100) for k in range(400)]
    answer = plan_isolated(request(layers, cluster(8, memory_bytes=10), 8, time_limit_s=1.5))
    assert answer.status == "infeasible"
    assert any("layer" in line for line in answer.explanation)


def test_it_works_from_a_thread() -> None:
    answers = []
    thread = threading.Thread(target=lambda: answers.append(plan_isolated(asked(time_limit_s=60.0))))
    thread.start()
    thread.join()
    assert [answer.status for answer in answers] == ["optimal"]
