"""Published optima, found by other means than ours, through the public Python API."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.formats import load_profile, parse_profile
from bapipe.formulations.cp_sat.solve import CpSat
from bapipe.formulations.milp.solve import Milp
from bapipe.formulations.protocol import Formulation
from bapipe.planner import plan
from bapipe.presets import cluster_from_spec
from bapipe.problem import ModelProfile, PlanRequest
from judges.hearings import unaided

SHARED = Path(__file__).parents[3] / "shared"
OPTIMA = SHARED / "cases" / "reference-optima.json"
PROFILE_BATCH = {"vgg16": 128, "resnet50": 128, "gnmt_large": 128, "gnmt": 32, "alexnet": 128, "densenet121": 128}
CUTS = {"kahn": "topological-order", "dag": "any"}


def group(name: str) -> list[Any]:
    if not OPTIMA.exists():
        return []
    groups = json.loads(OPTIMA.read_text())["groups"]
    return [row for found in groups if found["name"] == name for row in found["rows"]]


@cache
def profile(file: str) -> ModelProfile:
    return load_profile(SHARED / file, profile_batch=PROFILE_BATCH[Path(file).name.split(".")[0]])


def request_for(row: Any, model: ModelProfile, slower: float = 1.0) -> PlanRequest:
    # Training crosses a cut twice, so one crossing is what twice the bandwidth gives.
    bandwidth = row["bandwidth_bytes_per_s"] * 2 / (row["comm_factor"] or 2) / slower
    return PlanRequest(
        profile=model,
        cluster=cluster_from_spec(f"{row['devices']}xreference:{bandwidth!r}B/s"),
        batch_size=model.layers[0].times[0].microbatch_size,
        objective="bottleneck",
        communication=row["mode"],
        cuts=CUTS[row["cuts"]],
    )


def step_time_request(row: Any, model: ModelProfile) -> PlanRequest:
    return PlanRequest(
        profile=model,
        cluster=cluster_from_spec(f"{row['devices']}xreference"),
        batch_size=model.layers[0].times[0].microbatch_size,
        cuts="topological-order",
        schedules=("1f1b", "1f1b-so"),
        microbatch_counts=(row["microbatches"],),
    )


def row_id(row: Any) -> str:
    return "-".join(str(value) for value in row.values()).replace("data/pipedream/", "").replace(".graph.txt", "")


BOTTLENECK_ROWS = group("pipedream-chain-and-dag")
STEP_TIME_ROWS = group("step-time-1f1b")

pytestmark = pytest.mark.skipif(not OPTIMA.exists(), reason="the published optima are not on this machine")


def test_every_published_row_is_tried() -> None:
    assert len(BOTTLENECK_ROWS) == 167
    assert len(STEP_TIME_ROWS) == 16


@pytest.mark.parametrize("row", BOTTLENECK_ROWS, ids=row_id)
def test_bottleneck_optimum_of_published_profile(row: Any) -> None:
    found = plan(request_for(row, profile(row["file"])))

    assert found.status == "optimal"
    assert found.prediction is not None
    assert found.prediction.bottleneck_s * 1e3 == pytest.approx(row["optimum_ms"], rel=1e-6)
    assert found.proof.lower_bound_s == pytest.approx(found.prediction.bottleneck_s, rel=1e-9)


@pytest.mark.parametrize(
    ("row", "solver"),
    [
        pytest.param(row, solver, id=f"{solver}-{row_id(row)}")
        for solver in ("cp-sat", "milp")
        for row in BOTTLENECK_ROWS
    ],
)
def test_bottleneck_optimum_of_published_profile_by_a_model(row: Any, solver: str) -> None:
    found = plan(request_for(row, profile(row["file"])).model_copy(update={"solver": solver}))

    assert found.status == "optimal"
    assert found.proof.solver == {"cp-sat": "cp-sat", "milp": "milp:HiGHS"}[solver]
    assert found.prediction is not None
    assert found.prediction.bottleneck_s * 1e3 == pytest.approx(row["optimum_ms"], rel=1e-6)
    assert found.proof.lower_bound_s == pytest.approx(found.prediction.bottleneck_s, rel=1e-6)


SAMPLE = [
    (row, model)
    for model in (CpSat(), Milp())
    for row in BOTTLENECK_ROWS
    if (row["cuts"], row["comm_factor"]) == ("dag", 2) and row["devices"] > 2 and "densenet" not in row["file"]
    if model.name == "cp-sat" or row["devices"] < 8 or "resnet" not in row["file"]
]


@pytest.mark.parametrize(
    ("row", "model"), [pytest.param(row, model, id=f"{model.name}-{row_id(row)}") for row, model in SAMPLE]
)
def test_bottleneck_optimum_of_published_profile_by_a_model_that_is_told_nothing(row: Any, model: Formulation) -> None:
    found_s = unaided(request_for(row, profile(row["file"])), model)

    assert found_s is not None
    assert found_s * 1e3 == pytest.approx(row["optimum_ms"], rel=1e-6)


@pytest.mark.parametrize("row", STEP_TIME_ROWS, ids=row_id)
def test_step_time_optimum_of_published_profile(row: Any) -> None:
    found = plan(step_time_request(row, profile(row["file"])))

    assert found.status == "optimal"
    assert found.prediction is not None
    assert found.prediction.step_time_s * 1e3 == pytest.approx(row["optimum_ms"], rel=2e-5)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_bottleneck_optimum_survives_other_labels_lines_and_units(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(BOTTLENECK_ROWS))
    seconds, size = data.draw(st.floats(1e-3, 1e3)), data.draw(st.floats(1e-3, 1e3))
    model = mangled(data, row["file"], seconds, size, keep_order=row["cuts"] == "kahn")

    found = plan(request_for(row, model, slower=seconds / size))

    assert found.status == "optimal"
    assert found.prediction is not None
    assert found.prediction.bottleneck_s * 1e3 == pytest.approx(row["optimum_ms"] * seconds, rel=1e-6)


@settings(max_examples=16, deadline=None, derandomize=True)
@given(data=st.data())
def test_step_time_optimum_survives_other_labels_lines_and_units(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(STEP_TIME_ROWS))
    seconds, size = data.draw(st.floats(1e-3, 1e3)), data.draw(st.floats(1e-3, 1e3))

    found = plan(step_time_request(row, mangled(data, row["file"], seconds, size, keep_order=True)))

    assert found.status == "optimal"
    assert found.prediction is not None
    assert found.prediction.step_time_s * 1e3 == pytest.approx(row["optimum_ms"] * seconds, rel=2e-5)


def mangled(data: st.DataObject, file: str, seconds: float, size: float, *, keep_order: bool) -> ModelProfile:
    """The profile with its lines permuted, its nodes relabelled, its times and activations multiplied.

    `keep_order`: the order of the numbers, which is what breaks ties in a topological order.
    """
    text = (SHARED / file).read_text()
    numbers = sorted({int(number) for number in re.findall(r"node(\d+)", text)})
    labels = data.draw(st.lists(st.integers(1, 10**6), min_size=len(numbers), max_size=len(numbers), unique=True))
    label = dict(zip(numbers, sorted(labels) if keep_order else labels, strict=True))
    text = re.sub(r"node(\d+)", lambda found: f"node{label[int(found[1])]}", text)
    text = re.sub(r"(_time=)([\d.]+)", lambda found: f"{found[1]}{float(found[2]) * seconds!r}", text)
    text = re.sub(
        r"(activation_size=)(\[?)([\d.; ]+)", lambda found: found[1] + found[2] + _scaled(found[3], size), text
    )
    lines = data.draw(st.permutations(text.splitlines()))
    return parse_profile("\n".join(lines), profile_batch=PROFILE_BATCH[Path(file).name.split(".")[0]])


def _scaled(numbers: str, factor: float) -> str:
    return "; ".join(repr(float(number) * factor) for number in numbers.split(";"))
