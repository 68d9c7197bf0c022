"""Small analogues of public questions and bug reports, each with the answer that was derived for it elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from bapipe.check import check
from bapipe.errors import InvalidInputError
from bapipe.formats import load_profile
from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.presets import cluster_from_spec
from bapipe.problem import Cluster, Device, DeviceKind, Edge, Layer, LayerTime, Link, Links, ModelProfile, PlanRequest

SHARED = Path(__file__).parents[3] / "shared"
CASES = SHARED / "cases" / "practitioner-cases.json"

pytestmark = pytest.mark.skipif(not CASES.exists(), reason="the practitioner cases are not on this machine")


def case(number: str) -> Any:
    return next(found for found in json.loads(CASES.read_text())["cases"] if found["id"].startswith(f"{number}_"))


def profile_of(found: Any, seconds: Callable[[Any], tuple[float, float]] | None = None) -> ModelProfile:
    """Layers in file order form a chain; edges given are extra. Times are of one micro-batch of one sample, in ms."""

    def times(layer: Any) -> tuple[float, float]:
        return layer["fwd_ms"] / 1e3, layer["bwd_ms"] / 1e3

    names = [layer["name"] for layer in found["layers"]]
    pairs = [*pairwise(names), *map(tuple, found.get("edges", ()))]
    return ModelProfile(
        name=found["id"],
        layers=tuple(layer_of(layer, *(seconds or times)(layer)) for layer in found["layers"]),
        edges=tuple(Edge(source=source, target=target) for source, target in pairs),
    )


def layer_of(layer: Any, forward_s: float, backward_s: float) -> Layer:
    time = LayerTime(device_kind="reference", microbatch_size=1, forward_s=forward_s, backward_s=backward_s)
    return Layer(
        id=layer["name"],
        times=(time,),
        parameter_bytes=int(layer["param_bytes"]),
        gradient_bytes=0,
        output_bytes_per_sample=float(layer["activation_out_bytes"]),
        stash_bytes_per_sample=float(layer["stash_bytes_per_microbatch"]),
    )


def cluster_of(found: Any, num_devices: int | None = None) -> Cluster:
    devices = found["devices"][:num_devices]
    return Cluster(
        kinds=(DeviceKind(name="reference"),),
        devices=tuple(Device(id=d["name"], kind="reference", memory_bytes=d["mem_bytes"]) for d in devices),
    )


def bottleneck_plan(found: Any, **options: Any) -> Plan:
    settings: dict[str, Any] = {
        "profile": options.get("profile") or profile_of(found),
        "cluster": cluster_of(found),
        "batch_size": found["micro_batches"],
        "objective": "bottleneck",
        "communication": "none",
        "microbatch_sizes": (1,),
        "optimizer_bytes_per_parameter": 0,
    }
    return plan(PlanRequest(**(settings | options)))


def bottleneck_ms(answer: Plan) -> float:
    assert answer.status == "optimal"
    assert answer.prediction is not None
    assert check(answer) == []
    return answer.prediction.bottleneck_s * 1e3


def sizes(answer: Plan) -> list[int]:
    return [len(stage.layers) for stage in answer.stages]


def test_p01_a_huge_embedding_and_head_count_as_layers() -> None:
    found = case("P01")
    answer = bottleneck_plan(found)
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    assert len(answer.stages) == 4


def test_p02_no_stage_is_empty_when_five_layers_meet_four_devices() -> None:
    found = case("P02")
    answer = bottleneck_plan(found)
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    assert sorted(sizes(answer)) == [1, 1, 1, 2]


def test_p03_the_largest_stage_counts_and_not_the_spread() -> None:
    found = case("P03")
    answer = bottleneck_plan(found)
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    assert sizes(answer) == found["expected"]["partition"]


def test_p04_every_one_of_sixteen_devices_gets_layers_of_42_and_the_surplus_is_named() -> None:
    found = case("P04")
    answer = bottleneck_plan(found)
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    assert len(answer.stages) == 16
    assert min(sizes(answer)) >= 1
    assert any("14 devices" in line for line in answer.explanation)


@pytest.mark.parametrize("number", ["P05", "P17"])
def test_p05_p17_uneven_counts_cover_every_layer_once(number: str) -> None:
    found = case(number)
    answer = bottleneck_plan(found)
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    covered = [layer for stage in answer.stages for layer in stage.layers]
    assert covered == [layer["name"] for layer in found["layers"]]
    assert len(answer.stages) == len(found["devices"])


def test_p19_a_model_fits_that_a_reserve_for_the_largest_layer_refuses() -> None:
    found = case("P19")
    answer = bottleneck_plan(found)
    assert sizes(answer) in found["expected"]["partitions"]
    assert sorted(fitting_splits(answer)) == sorted(found["expected"]["partitions"])


def fitting_splits(answer: Plan) -> Iterator[list[int]]:
    """All splits into as many stages as `answer` has that `check` finds no memory fault in."""
    names = [layer.id for layer in answer.request.profile.layers]
    for inner in combinations(range(1, len(names)), len(answer.stages) - 1):
        ends = [0, *inner, len(names)]
        stages = tuple(
            stage.model_copy(update={"layers": tuple(names[ends[s] : ends[s + 1]])})
            for s, stage in enumerate(answer.stages)
        )
        if "out_of_memory" not in {fault.code for fault in check(answer.model_copy(update={"stages": stages}))}:
            yield [len(stage.layers) for stage in stages]


def test_p21_embedding_and_stashes_turn_the_balanced_split_around() -> None:
    found = case("P21")
    answer = bottleneck_plan(found, schedules=("1f1b",))
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    blocks = [sum(name.startswith("block") for name in stage.layers) for stage in answer.stages]
    assert blocks == found["expected"]["partition_blocks"]
    unlimited = bottleneck_plan(
        found, schedules=("1f1b",), cluster=cluster_from_spec(f"{len(found['devices'])}xreference")
    )
    assert bottleneck_ms(unlimited) == pytest.approx(found["expected"]["time_only_value"])


def test_p23_skip_tensors_cross_every_cut_between_their_ends() -> None:
    found = case("P23")
    bytes_per_s = found["links"]["MB_per_ms"] * 1e9
    cluster = cluster_of(found).model_copy(update={"links": Links(within_host=Link(bandwidth_bytes_per_s=bytes_per_s))})
    answer = bottleneck_plan(found, cluster=cluster, task="inference", communication="overlap")
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    assert sizes(answer)[0] == found["expected"]["cut_after"]


def test_p24_the_micro_batch_size_weighs_launches_against_the_fill() -> None:
    found, expected = case("P24"), case("P24")["expected"]
    fixed_s, per_sample_s = (found["stage_time_ms"][name] / 1e3 for name in ("fixed", "per_sample"))
    points = tuple(
        LayerTime(device_kind="reference", microbatch_size=b, forward_s=fixed_s + per_sample_s * b, backward_s=0.0)
        for b in (1, 2)
    )
    layers = tuple(Layer(id=layer["name"], times=points) for layer in found["layers"])
    request = PlanRequest(
        profile=ModelProfile(name="P24", layers=layers),
        cluster=cluster_of(found),
        batch_size=found["batch"],
        schedules=("1f1b",),
    )

    best = plan(request)
    divisible = plan(request.model_copy(update={"microbatch_counts": (4, 8, 12, 24)}))

    assert best.schedule is not None
    assert best.prediction is not None
    assert best.prediction.step_time_s * 1e3 == pytest.approx(expected["step_1f1b"])
    assert best.schedule.microbatch_size == expected["b_1f1b"]
    assert divisible.schedule is not None
    assert divisible.prediction is not None
    assert divisible.prediction.step_time_s * 1e3 == pytest.approx(expected["step_divisible"])
    assert divisible.schedule.microbatch_size == expected["b_divisible"]


def test_p24_a_micro_batch_count_that_does_not_divide_the_batch_is_refused() -> None:
    found = case("P24")
    allowed = found["expected"]["batch8_M"]
    with pytest.raises(ValueError, match="does not divide"):
        PlanRequest(profile=profile_of(found), cluster=cluster_of(found), batch_size=8, microbatch_counts=(3, 5, 6, 7))
    assert PlanRequest(
        profile=profile_of(found), cluster=cluster_of(found), batch_size=8, microbatch_counts=tuple(allowed)
    )
    assert issubclass(InvalidInputError, ValueError)


@pytest.mark.parametrize("num_devices", [1, 2, 3, 4])
def test_p27_one_heavy_layer_bounds_every_number_of_devices(num_devices: int) -> None:
    found = case("P27")
    answer = bottleneck_plan(found, cluster=cluster_of(found, num_devices))
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["values"][str(num_devices)])
    surplus = any("3 devices" in line for line in answer.explanation)
    assert surplus == (num_devices == 4)


def test_p29_layers_without_parameters_still_take_time() -> None:
    found = case("P29")
    answer = bottleneck_plan(found)
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    assert sizes(answer)[0] == found["expected"]["cut_after"]


def test_p32_encoder_and_decoder_blocks_balance_better_than_three_a_stage() -> None:
    found = case("P32")
    profile = profile_of(found, lambda layer: (layer["param_bytes"] / 1e9, 0.0))
    answer = bottleneck_plan(found, profile=profile)
    assert bottleneck_ms(answer) * 1e6 == pytest.approx(found["expected"]["value"])
    assert found["expected"]["value"] < max(found["expected"]["naive"])


def test_p36_the_time_of_loading_data_stays_out_of_the_balance() -> None:
    found = case("P36")
    profile = load_profile(SHARED / found["profile_file"], profile_batch=128)
    answer = bottleneck_plan(
        found, profile=profile, cluster=cluster_from_spec("2xreference"), batch_size=128, microbatch_sizes=(128,)
    )
    assert bottleneck_ms(answer) == pytest.approx(found["expected"]["value"])
    assert answer.stages[0].layers[-1] == found["expected"]["cut_after_node"]
    assert any("635.9" in warning for warning in answer.warnings)
