"""The exit code says what happened to the plan."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.plan import Plan, Prediction, Proof, Schedule, Stage
from bapipe.presets import cluster_from_spec
from bapipe.problem import Layer, LayerTime, ModelProfile, PlanRequest
from bapipe_cli.exits import ExitCode
from bapipe_cli.planning import exit_code


def answer(status: Any, gap: float | None, *, asked_gap: float = 0.0, wall_s: float = 60.0) -> Plan:
    time = LayerTime(device_kind="reference", microbatch_size=1, forward_s=1.0, backward_s=2.0)
    profile = ModelProfile(name="one", layers=(Layer(id="a", times=(time,)),))
    request = PlanRequest(
        profile=profile, cluster=cluster_from_spec("1xreference"), batch_size=1, gap=asked_gap, time_limit_s=60.0
    )
    stage = Stage(
        index=0,
        layers=("a",),
        devices=("host0/gpu0",),
        forward_s=1.0,
        backward_s=2.0,
        load_s=3.0,
        peak_memory_bytes=0.0,
        memory_limit_bytes=None,
    )
    prediction = Prediction(
        step_time_s=3.0, period_s=3.0, bottleneck_s=3.0, samples_per_s=1 / 3, bubble_fraction=0.0, devices=()
    )
    solved: dict[str, Any] = {
        "stages": (stage,),
        "schedule": Schedule(name="gpipe", num_microbatches=1, microbatch_size=1, orders=(("0F0", "0B0"),)),
        "prediction": prediction,
    }
    proof = Proof(
        lower_bound_s=None if gap is None else 3.0 * (1 - gap),
        gap=gap,
        scope="candidates",
        scope_detail="",
        solver="none",
        tolerance=0.0,
        wall_s=wall_s,
    )
    return Plan(status=status, request=request, proof=proof, **({} if status == "infeasible" else solved))


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (answer("optimal", 0.0), ExitCode.OK),
        (answer("feasible", 0.01, asked_gap=0.02), ExitCode.OK),
        (answer("infeasible", None), ExitCode.INFEASIBLE),
        (answer("feasible", 0.03, asked_gap=0.02), ExitCode.TIME_LIMIT),
        (answer("feasible", None), ExitCode.TIME_LIMIT),
    ],
)
def test_exit_code_of_a_plan(plan: Plan, code: ExitCode) -> None:
    assert exit_code(plan) == code


@pytest.mark.parametrize("status", ["optimal", "feasible", "infeasible"])
def test_an_interrupted_search_is_interrupted_whatever_it_found(status: str) -> None:
    assert exit_code(answer(status, None), interrupted=True) == 130
