"""What a plan takes for granted is said with it, and what cannot be planned is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.errors import InvalidInputError
from bapipe.faults import parse
from bapipe.planner import plan, validate
from bapipe.presets import cluster_from_spec
from bapipe.problem import (
    Cluster,
    Device,
    DeviceKind,
    Edge,
    LayerTime,
    Link,
    ModelProfile,
    PlanRequest,
    TiedParameters,
)
from judges.instances import cluster, layer, request

SIZED = {"parameter_bytes": 8, "output_bytes_per_sample": 4.0}


def hand_written(**fields: Any) -> PlanRequest:
    """Two layers on two devices of a kind that leaves out what it may."""
    time = LayerTime(device_kind="mine", microbatch_size=1, forward_s=1.0, backward_s=2.0)
    layers = [layer(name, **SIZED).model_copy(update={"times": (time,)}) for name in "ab"]
    devices = Cluster(
        kinds=(DeviceKind(name="mine"),), devices=tuple(Device(id=f"d{k}", kind="mine") for k in range(2))
    )
    return request(layers, devices, 4, **fields)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (hand_written(), "mine has no memory_bytes"),
        (hand_written(), "mine has no memory_bandwidth_bytes_per_s"),
        (hand_written(), "links without bandwidth_bytes_per_s"),
        (hand_written(), "times are of micro-batches of 1 only"),
        (hand_written(edges=()), "2 layers are in no edge, 'a' first"),
        (hand_written(dtype="fp16"), "dtype fp16 changes no time"),
        (
            request([layer("a", **SIZED)], cluster_from_spec("2xVCU118:100Gb"), 4, measured_on="reference"),
            "VCU118 has no peak_flops of fp32: the times of layers that it bounds are taken unchanged",
        ),
        (request([layer("a", **SIZED), layer("b", **SIZED)], 3, 7), "6 or 9 would"),
        (request([layer("a"), layer("b")], 2, 4), "no layer has output bytes"),
        (request([layer("a"), layer("b")], 2, 4), "no layer has parameter bytes"),
        (
            request([layer("a", **SIZED), layer("b").model_copy(update={"times": ()})], 2, 4),
            "1 of 2 layers have no time",
        ),
    ],
)
def test_what_was_left_out_is_said(asked: PlanRequest, said: str) -> None:
    assert any(said in warning for warning in validate(asked))
    assert set(plan(asked).warnings) >= set(validate(asked))


def test_a_complete_request_needs_no_warning() -> None:
    layers = [layer(name, **SIZED) for name in "ab"]
    assert validate(request(layers, cluster(2, Link(bandwidth_bytes_per_s=1.0)), 2, microbatch_sizes=(1,))) == ()


def test_times_measured_on_a_preset_kind_are_scaled_from_it() -> None:
    layers = [layer(name, **SIZED, kind="Linear") for name in "ab"]
    asked = request(layers, cluster(2, peak_flops={"fp32": 1e12}, memory_bandwidth_bytes_per_s=1e11), 2)
    measured = asked.model_copy(update={"measured_on": "V100-16G", "profile": _on_v100(asked.profile)})
    alone = plan(measured.model_copy(update={"max_stages": 1, "schedules": ("1f1b",)}))
    assert alone.prediction is not None
    assert alone.prediction.step_time_s > 2 * 2 * 3.0  # a slower device than the V100


def test_a_kind_nobody_knows_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidInputError) as refused:
        validate(request([layer("a")], 1, 1, measured_on="V100-16"))
    assert [(fault.code, fault.pointer) for fault in refused.value.faults] == [("dangling_reference", "/measured_on")]


SKIPPING = (Edge(source="a", target="b"), Edge(source="b", target="c"), Edge(source="a", target="c"))
TIED = (TiedParameters(layers=("a", "c"), parameter_bytes=4),)


@pytest.mark.parametrize(
    ("devices", "fields", "pointer"),
    [
        (cluster(2, Link(mode="blocking")), {}, "/cluster/links/within_host/mode"),
        (cluster(2, Link(mode="streaming")), {}, "/cluster/links/within_host/mode"),
        (cluster(2, execution="async"), {}, "/cluster/kinds/0/execution"),
        (cluster(2, host_nic=Link()), {}, "/cluster/host_nic"),
        (cluster(2, skip_tensors="direct"), {"edges": SKIPPING}, "/cluster/skip_tensors"),
        (cluster(2), {"tied_parameters": TIED}, "/profile/tied_parameters"),
    ],
)
def test_what_the_bounds_do_not_cover_is_not_searched(devices: Cluster, fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        validate(request([layer(name) for name in "abc"], devices, 2, **fields))
    assert [(fault.code, fault.pointer) for fault in refused.value.faults] == [("unsupported", pointer)]


def test_infeasible_names_the_smallest_device_and_the_baseline_the_one_that_overflows() -> None:
    devices = cluster(2, memory_bytes=1000)
    small = devices.devices[1].model_copy(update={"memory_bytes": 5})
    layers = [layer(name, **SIZED) for name in "ab"]
    asked = request(layers, devices.model_copy(update={"devices": (devices.devices[0], small)}), 2, idle_devices=False)
    found = plan(asked)
    assert found.status == "infeasible"
    assert "d1 has only 5 B to use" in found.explanation
    assert all("of 5 B on d1" in baseline.note for baseline in found.baselines)


def test_a_baseline_too_long_to_replay_is_left_out_and_says_so() -> None:
    asked = request([layer(name, **SIZED) for name in "abcd"], 4, 100_000, microbatch_sizes=(1,), time_limit_s=1.0)
    notes = {baseline.name: baseline.note for baseline in plan(asked).baselines if baseline.step_time_s is None}
    assert notes == dict.fromkeys(
        ("gpipe-equal-layers", "1f1b-equal-layers"), "100000 micro-batches are too many to replay on 4 devices"
    )


def test_a_whole_number_may_be_written_with_a_point() -> None:
    written = parse(ModelProfile, {"name": "m", "layers": [{"id": "a", "parameter_bytes": 4e6}]})
    assert written.layers[0].parameter_bytes == 4_000_000
    with pytest.raises(InvalidInputError, match=r"4\.5"):
        parse(ModelProfile, {"name": "m", "layers": [{"id": "a", "parameter_bytes": 4.5}]})


def test_a_tensor_by_name_says_its_bytes() -> None:
    with pytest.raises(ValueError, match="bytes_per_sample"):
        Edge(source="a", target="b", tensor="skip")


def _on_v100(profile: ModelProfile) -> ModelProfile:
    def moved(time: LayerTime) -> LayerTime:
        return time.model_copy(update={"device_kind": "V100-16G"})

    layers = tuple(item.model_copy(update={"times": tuple(map(moved, item.times))}) for item in profile.layers)
    return profile.model_copy(update={"layers": layers})
