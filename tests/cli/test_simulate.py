"""A plan that is edited is simulated as it is, and what is wrong with it is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Document = dict[str, Any]


@pytest.fixture
def plan(profile: Document, cluster: Document, write: Any, run: Any) -> Document:
    """An optimal pipeline of two stages."""
    files = write("profile.json", profile), write("cluster.json", cluster)
    result = run("plan", *files, "--batch", "4", "--schedules", "1f1b", "--json")
    assert result.exit_code == 0, result.output
    found: Document = json.loads(result.stdout)
    assert len(found["stages"]) == 2
    return found


def less_memory(plan: Document) -> None:
    plan["request"]["cluster"]["kinds"][0]["memory_bytes"] = 1000


def stale_figures(plan: Document) -> None:
    plan["request"]["profile"]["layers"][0]["times"][0]["forward_s"] = 0.5


def a_layer_moved(plan: Document) -> None:
    first, second = plan["stages"]
    second["layers"].insert(0, first["layers"].pop())


def a_better_bound(plan: Document) -> None:
    plan["proof"]["lower_bound_s"] *= 2


def an_unproven_status(plan: Document) -> None:
    plan["proof"] |= {"lower_bound_s": plan["proof"]["lower_bound_s"] / 2, "gap": 0.5}


EDITS: dict[str, tuple[Callable[[Document], None], int, str, str]] = {
    "too little memory": (less_memory, 3, "out_of_memory", "/stages/0/devices/0"),
    "other times": (stale_figures, 0, "wrong_value", "/prediction/step_time_s"),
    "a layer moved": (a_layer_moved, 0, "wrong_value", "/prediction/step_time_s"),
    "a bound above the plan": (a_better_bound, 0, "wrong_bound", "/proof/lower_bound_s"),
    "a status without a proof": (an_unproven_status, 0, "wrong_bound", "/status"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_plan(name: str, plan: Document, write: Any, run: Any, tmp_path: Any) -> None:
    edit, code, fault, pointer = EDITS[name]
    edit(plan)
    path, page = write("plan.json", plan), tmp_path / "page.html"

    text = run("simulate", path, "--html", str(page))
    figures = run("simulate", path, "--json")

    assert (text.exit_code, figures.exit_code) == (code, code)
    assert "\nFaults\n" in text.stdout
    assert f"[{fault}]" in text.stdout
    faults = json.loads(figures.stdout)["faults"]
    assert (fault, pointer) in {(each["code"], each["pointer"]) for each in faults}
    assert "declared optimal, with " in page.read_text()
    assert "proven lower bound" not in page.read_text()


def test_a_sound_plan_has_no_faults(plan: Document, write: Any, run: Any, tmp_path: Any) -> None:
    path, page = write("plan.json", plan), tmp_path / "page.html"

    text = run("simulate", path, "--html", str(page))

    assert text.exit_code == 0
    assert "Faults" not in text.stdout
    assert json.loads(run("simulate", path, "--json").stdout)["faults"] == []
    assert "; optimal</p>" in page.read_text()


def test_memory_is_that_of_the_request_and_not_what_a_stage_says(plan: Document, write: Any, run: Any) -> None:
    less_memory(plan)

    text = run("simulate", write("plan.json", plan)).stdout

    assert "1000 B" in text
    assert "954 MiB" not in text


def test_many_faults_alike_are_counted(plan: Document, write: Any, run: Any) -> None:
    plan["schedule"]["orders"][0] = [f"{operation}0" for operation in plan["schedule"]["orders"][0] for _ in range(9)]

    result = run("simulate", write("plan.json", plan), "--json")

    assert result.exit_code == 3
    assert len(json.loads(result.stdout)["errors"]) > 10
    assert len(result.stderr.splitlines()) < 15
    assert "more like these [" in result.stderr


@pytest.mark.parametrize(
    ("name", "what"),
    [("request", "a BaPipe plan request"), ("profile", "a BaPipe model profile"), ("cluster", "a BaPipe cluster")],
)
def test_another_document_is_named(
    name: str, what: str, plan: Document, profile: Document, cluster: Document, write: Any, run: Any
) -> None:
    path = write("other.json", {"request": plan["request"], "profile": profile, "cluster": cluster}[name])

    result = run("simulate", path)

    assert result.exit_code == 3
    assert result.stderr == f"/: this is {what}, not a plan [wrong_document]\n"


def test_a_plan_is_no_profile_and_a_profile_no_cluster(plan: Document, profile: Document, write: Any, run: Any) -> None:
    result = run("plan", write("plan.json", plan), write("profile.json", profile), "--batch", "4")

    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "/profile: this is a BaPipe plan, not a model profile [wrong_document]",
        "/cluster: this is a BaPipe model profile, not a cluster [wrong_document]",
    ]


def test_a_step_is_written_as_a_trace(plan: Document, write: Any, run: Any, tmp_path: Any) -> None:
    trace = tmp_path / "trace.json"

    result = run("simulate", write("plan.json", plan), "--trace", str(trace))

    assert result.exit_code == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == ["d0", "d1"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f", "C"}


def test_a_trace_needs_a_folder(plan: Document, write: Any, run: Any, tmp_path: Any) -> None:
    result = run("simulate", write("plan.json", plan), "--trace", str(tmp_path / "absent" / "trace.json"))

    assert result.exit_code == 2
    assert "there is no folder" in result.stderr


def test_orders_of_a_file_are_executed_instead(plan: Document, write: Any, run: Any, tmp_path: Any) -> None:
    plan["request"].pop("schedules")
    given = tmp_path / "orders.csv"
    rows = [",".join(order) for order in plan["schedule"]["orders"]]
    given.write_text("\n".join(rows))
    result = run("simulate", write("plan.json", plan), "--orders", str(given), "--json")
    assert result.exit_code == 0, result.output
    given.write_text("\n".join([f"{rows[0]},0F0", *rows[1:]]))
    result = run("simulate", write("plan.json", plan), "--orders", str(given))
    assert result.exit_code == 3
    assert f"row 1, cell {len(plan['schedule']['orders'][0]) + 1}: 0F0 was already executed" in " ".join(
        (result.stdout + result.stderr).split()
    )


def test_figures_of_other_orders_are_no_faults(write: Any, run: Any, tmp_path: Any) -> None:
    made = run("schedules", "--plan", "1f1b", "--stages", "2", "--microbatches", "3").stdout
    given = tmp_path / "orders.csv"
    given.write_text("0F0,0F1,0B0,0B1,0F2,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n")
    path = write("plan.json", json.loads(made))

    result = run("simulate", path, "--orders", str(given))

    assert result.exit_code == 0, result.output
    assert "17.00 s a step" in result.stdout
    assert "Faults" not in result.stdout
