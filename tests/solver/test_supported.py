"""What a plan takes for granted is said with it, and what cannot be planned is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.errors import InvalidInputError
from bapipe.faults import parse
from bapipe.link_modes import pipelines_on
from bapipe.planner import plan, validate
from bapipe.presets import cluster_from_spec
from bapipe.problem import (
    Cluster,
    Device,
    DeviceKind,
    Edge,
    LayerTime,
    Link,
    Links,
    ModelProfile,
    Pin,
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
    ("devices", "fields"),
    [
        (cluster(2, Link(mode="blocking")), {}),
        (cluster(2, Link(mode="streaming")), {}),
        (cluster(2, execution="async"), {}),
        (cluster(2, host_nic=Link()), {}),
        (cluster(2, skip_tensors="direct"), {"edges": SKIPPING}),
        (cluster(2), {"tied_parameters": TIED}),
        (cluster(2), {"pins": (Pin(layer="a", device="d0"),)}),
    ],
)
def test_whatever_can_be_simulated_in_one_stage_a_device_is_searched(devices: Cluster, fields: dict[str, Any]) -> None:
    assert plan(request([layer(name) for name in "abc"], devices, 2, **fields)).status == "optimal"


STREAMING = cluster(2, Link(mode="streaming", chunks=4), execution="async")


@pytest.mark.parametrize(
    ("devices", "fields", "fault"),
    [
        (
            cluster(2, Link(mode="blocking")),
            {"schedules": ("1f1b", "1f1b-so")},
            ("not_allowed", "/schedules/1", "1f1b-so needs links that are overlapped; these are blocking"),
        ),
        (
            cluster(2),
            {"schedules": ("fbp-as",)},
            ("not_allowed", "/schedules/0", "needs links that are streaming between asynchronous devices"),
        ),
        (
            cluster(2, Link(mode="streaming"), execution="sync"),
            {"schedules": ("fbp-as",)},
            ("not_allowed", "/schedules/0", "these are overlapped, which allow 1f1b, 1f1b-so, gpipe"),
        ),
        (
            STREAMING,
            {"schedules": ("fbp-as",), "task": "inference"},
            ("not_allowed", "/schedules/0", "inference has none"),
        ),
        (
            STREAMING,
            {"schedules": ("1f1b-so",)},
            ("not_allowed", "/schedules/0", "which allow 1f1b, fbp-as, gpipe"),
        ),
        (
            cluster(2, host_nic=Link()),
            {"objective": "bottleneck"},
            ("unsupported", "/cluster/host_nic", "does not know cards"),
        ),
        (
            cluster(3, Link(mode="blocking"), skip_tensors="direct"),
            {"objective": "bottleneck", "edges": SKIPPING},
            ("unsupported", "/cluster/skip_tensors", "may stop for each other in a circle"),
        ),
    ],
)
def test_what_links_and_devices_rule_out_is_refused(
    devices: Cluster, fields: dict[str, Any], fault: tuple[str, str, str]
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        validate(request([layer(name) for name in "abc"], devices, 2, **fields))
    assert [(found.code, found.pointer) for found in refused.value.faults] == [fault[:2]]
    assert fault[2] in refused.value.faults[0].detail


def test_links_say_which_schedules_there_are_to_choose_from() -> None:
    layers = [layer(name) for name in "abc"]
    by_mode = {
        mode: pipelines_on(request(layers, cluster(3, Link(mode=mode), execution=execution), 2), 3)
        for mode, execution in (("blocking", "sync"), ("overlapped", "async"), ("streaming", "async"))
    }
    assert by_mode == {
        "blocking": ("1f1b", "gpipe"),
        "overlapped": ("1f1b", "1f1b-so", "gpipe"),
        "streaming": ("1f1b", "fbp-as", "gpipe"),
    }
    mixed = cluster(3, Link(mode="streaming"), execution="async")
    far = mixed.devices[2].model_copy(update={"host": "far"})
    links = Links(within_host=Link(mode="streaming"), between_hosts=Link())
    mixed = mixed.model_copy(update={"devices": (*mixed.devices[:2], far), "links": links})
    assert pipelines_on(request(layers, mixed, 2), 3) == ("1f1b", "gpipe")
    assert pipelines_on(request(layers, mixed, 2), 2) == ("1f1b", "fbp-as", "gpipe")


def test_a_plan_over_streaming_links_says_what_the_paper_calls_it_and_which_shares_were_tried() -> None:
    layers = [layer(name, streamable=True, output_bytes_per_sample=1.0) for name in "abcd"]
    devices = cluster(2, Link(mode="streaming", chunks=4, bandwidth_bytes_per_s=0.3), execution="async")
    found = plan(request(layers, devices, 16))
    assert "forward shares F / (F + B), 1/4, 1/3, 1/2 of each stage" in found.proof.scope_detail
    split = plan(request(layers, devices, 16, schedules=("fbp-as",)))
    assert any("FBP-AS" in line for line in split.explanation)
    assert any(line.startswith("forward engines have 33.3 % and 33.3 %") for line in split.explanation)
    assert any("1F1B-AS" in line for line in plan(request(layers, devices, 16, schedules=("1f1b",))).explanation)


def test_infeasible_names_the_smallest_device_and_the_baseline_the_one_that_overflows() -> None:
    devices = cluster(2, memory_bytes=1000)
    small = devices.devices[1].model_copy(update={"memory_bytes": 5})
    layers = [layer(name, **SIZED) for name in "ab"]
    asked = request(layers, devices.model_copy(update={"devices": (devices.devices[0], small)}), 2, idle_devices=False)
    found = plan(asked)
    assert found.status == "infeasible"
    assert "d1 has only 5 B to use" in found.explanation
    assert all("of 5 B on d1" in baseline.note for baseline in found.baselines)


def test_what_would_fit_is_said_in_singular_and_plural() -> None:
    asked = request([layer(name, **SIZED) for name in "ab"], cluster(2, memory_bytes=5), 1, schedules=("1f1b",))
    assert plan(asked).explanation[-1].endswith((": 1f1b, 2 stages, 1 micro-batch", ": 1f1b, 1 stage, 1 micro-batch"))


def test_a_baseline_that_breaks_pins_says_so() -> None:
    asked = request([layer(name, **SIZED) for name in "abcd"], 2, 4, pins=(Pin(layer="c", device="d0"),))
    notes = {baseline.name: baseline.note for baseline in plan(asked).baselines}
    assert {name for name, note in notes.items() if note.endswith("; not as pinned")} == {
        "gpipe-equal-layers",
        "1f1b-equal-layers",
    }


def test_the_bottleneck_at_one_size_only_is_explained() -> None:
    layers = [layer(name, **SIZED) for name in "ab"]
    alone = plan(request(layers, 2, 4, objective="bottleneck"))
    assert any("whole mini-batch as one micro-batch" in line for line in alone.explanation)
    named = plan(request(layers, 2, 4, objective="bottleneck", microbatch_sizes=(1, 2)))
    assert not any("whole mini-batch" in line for line in named.explanation)


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


@pytest.mark.parametrize(
    ("devices", "fields"),
    [
        (cluster(3, Link(mode="blocking")), {}),
        (cluster(3, skip_tensors="direct"), {}),
        (cluster(2, Link(mode="blocking"), skip_tensors="direct"), {}),
        (cluster(3, Link(mode="blocking"), skip_tensors="direct"), {"max_stages": 2, "idle_devices": True}),
    ],
)
def test_a_bottleneck_where_nobody_can_stop_in_a_circle_is_searched(devices: Cluster, fields: dict[str, Any]) -> None:
    layers = [layer(name, output_bytes_per_sample=1.0) for name in "abc"]
    asked = request(layers, devices, 2, objective="bottleneck", edges=SKIPPING, **fields)
    assert plan(asked).status == "optimal"
