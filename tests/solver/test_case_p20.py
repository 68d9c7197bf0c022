"""Practitioner case P20: balanced stages under 1F1B, and still the first device is the fullest."""

import json
from pathlib import Path

import pytest

from bapipe.check import check
from bapipe.schedules import in_flight
from judges.instances import cluster, layer, make_plan, request

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "practitioner-cases.json"


@pytest.fixture(scope="module")
def case():
    if not CASES.exists():
        pytest.skip(f"{CASES.name} is not here")
    return next(item for item in json.loads(CASES.read_text())["cases"] if item["id"].startswith("P20"))


@pytest.fixture(scope="module")
def plan_named(case):
    """The case as a plan: one layer a stage; parameters and stash as the case gives them, no optimizer state."""
    layers = [
        layer(
            item["name"],
            item["fwd_ms"] / 1000,
            item["bwd_ms"] / 1000,
            parameter_bytes=item["param_bytes"],
            gradient_bytes=0,
            stash_bytes_per_sample=float(item["stash_bytes_per_microbatch"]),
        )
        for item in case["layers"]
    ]
    devices = cluster(len(layers), memory_bytes=case["devices"][0]["mem_bytes"])
    asked = request(layers, devices, case["micro_batches"], optimizer_bytes_per_parameter=0)
    return lambda name: make_plan(asked, [[item.id] for item in layers], name, case["micro_batches"])


def test_p20_1f1b_holds_fewer_stashes_on_later_stages(case):
    expected, n = case["expected"], len(case["layers"])
    for name, key in (("1f1b", "in_flight_1f1b"), ("gpipe", "in_flight_gpipe")):
        assert [in_flight(name, s, n, case["micro_batches"]) for s in range(n)] == expected[key]


def test_p20_peaks_are_exact_and_the_first_stage_is_named_out_of_memory(case, plan_named):
    plan, expected = plan_named("1f1b"), case["expected"]
    assert [device.peak_memory_bytes for device in plan.prediction.devices] == expected["peak_1f1b"]
    assert [(f.code, f.pointer) for f in check(plan)] == [
        ("out_of_memory", f"/stages/{stage}/devices/0") for stage in expected["oom_1f1b"]
    ]


def test_p20_both_schedules_take_33_ms(case, plan_named):
    for name in ("1f1b", "gpipe"):
        step_ms = plan_named(name).prediction.step_time_s * 1000
        assert step_ms == pytest.approx(case["expected"]["step_ms"], rel=1e-12)
