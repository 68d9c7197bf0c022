"""Plans for FPGAs: what is proven against every partition, simulated one by one."""

from __future__ import annotations

from itertools import combinations, count, product
from math import inf
from typing import Any

import pytest

from bapipe.check import check
from bapipe.emulation.emulate import emulate
from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe.planner import plan, validate
from bapipe.problem import Fpga, Layer, Link, Links, PlanRequest
from bapipe.quantities import seconds_text
from bapipe.search import Search
from bapipe.simulator import simulate
from judges.boards import convolution, fpga, linear, relu, request
from judges.instances import make_plan

LAYERS = [
    *(convolution("a", 4, 8, 16), relu("b", 128), convolution("c", 8, 8, 16), relu("d", 128)),
    *(convolution("e", 8, 8, 16), linear("f", 128, 8), linear("g", 8, 40), linear("h", 40, 4)),
]
SMALL = fpga(on_chip_bytes=2600, off_chip_bandwidth_bytes_per_s=20_000.0)


def asked(board: Fpga = SMALL, layers: list[Layer] = LAYERS, mode: str = "overlapped", **options: Any) -> PlanRequest:
    link = Link.model_validate(
        {"bandwidth_bytes_per_s": 20_000.0, "mode": mode, "chunks": 4 if mode == "streaming" else 1}
    )
    known: dict[str, Any] = {"microbatch_sizes": (2,), "max_replication": 1, "idle_devices": False}
    made = request(layers, board, 3, **known | options)
    cluster = made.cluster.model_copy(update={"links": Links(within_host=link)})
    return made.model_copy(update={"cluster": cluster})


def every_partition(made: PlanRequest, name: str) -> list[Plan]:
    names = [layer.id for layer in made.profile.layers]
    cuts = combinations(range(1, len(names)), 2)
    stages = [[tuple(names[:a]), tuple(names[a:b]), tuple(names[b:])] for a, b in cuts]
    return [make_plan(made, each, name, made.batch_size // 2) for each in stages]


@pytest.mark.parametrize("mode", ["overlapped", "blocking", "streaming"])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_no_partition_is_faster(mode: str, schedule: str) -> None:
    made = asked(mode=mode, schedules=(schedule,))
    best = min(simulate(each).step_time_s for each in every_partition(made, schedule))
    found = plan(made)
    assert found.status == "optimal"
    assert found.prediction is not None
    assert found.prediction.step_time_s == pytest.approx(best, rel=1e-9)
    assert check(found) == []


def split(made: Plan, shares: tuple[float, ...]) -> Plan:
    """The plan with each board divided between a forward and a backward engine."""
    stages = [
        stage.model_copy(update={"forward_share": share}) for stage, share in zip(made.stages, shares, strict=True)
    ]
    return made.model_copy(update={"stages": tuple(stages)})


def test_no_partition_of_split_boards_is_faster() -> None:
    made = asked(layers=LAYERS[2:], mode="streaming", schedules=("fbp-as",))
    found = plan(made)
    named = found.schedule
    assert named is not None
    best = inf
    for each in every_partition(made, "1f1b"):
        ordered = each.model_copy(update={"schedule": named})
        for shares in product((1 / 4, 1 / 3, 1 / 2), repeat=3):
            best = min(best, simulate(split(ordered, shares)).step_time_s)
    assert found.status == "optimal"
    assert "forward shares 1/4, 1/3, 1/2 of each stage" in found.proof.scope_detail
    assert found.prediction is not None
    assert found.prediction.step_time_s == pytest.approx(best, rel=1e-9)
    assert check(found) == []


@pytest.mark.parametrize("schedules", [("1f1b", "gpipe"), ("fbp-as",), None])
def test_wherever_a_search_is_stopped_its_bound_holds(schedules: Any) -> None:
    """There is one from the first question whether to stop, before anything was worked out of a stage."""
    made = asked(layers=LAYERS[2:], mode="streaming", schedules=schedules, microbatch_sizes=(1, 2, 4))
    best = plan(made)
    assert best.prediction is not None
    for patience in (*range(12), 20, 40, 80, 160):
        questions = count()
        outcome = Search(made, inf, should_stop=lambda: next(questions) >= patience).run()  # noqa: B023  # used at once
        assert outcome.lower_bound_s is not None
        assert outcome.lower_bound_s <= best.prediction.step_time_s * (1 + 1e-9)


def test_a_plan_warns_of_fifos_that_fill_up() -> None:
    """The second layer takes long to start, so that the first waits for room in front of the link."""
    shallow = SMALL.model_copy(update={"fifo_bytes": 256})
    found = plan(asked(shallow, mode="streaming", schedules=("1f1b",)))
    assert found.prediction is not None
    step_s = emulate(found).report.step_time_s
    assert step_s is not None
    assert step_s > found.prediction.step_time_s * 1.001
    texts = [text for text in found.warnings if text.startswith("FIFOs fill up")]
    assert len(texts) == 1
    assert f"takes {seconds_text(step_s)} instead of {seconds_text(found.prediction.step_time_s)}" in texts[0]
    tiny = plan(asked(SMALL.model_copy(update={"fifo_bytes": 16}), mode="streaming", schedules=("1f1b",)))
    assert any("a FIFO of 16 bytes holds no chunk of 256 bytes" in text for text in tiny.warnings)
    for deep in (SMALL, SMALL.model_copy(update={"fifo_bytes": 2**20})):
        assert not any("FIFO" in text for text in plan(asked(deep, mode="streaming", schedules=("1f1b",))).warnings)


def test_the_cut_goes_where_the_weights_fit() -> None:
    """Of four equal layers each board can hold two: with room for two the cut is in the middle, though the first board
    also has a slow layer without weights, which a balance of compute alone would give fewer of the others.
    """
    layers = [relu("slow", 64, operators=({"kind": "elementwise", "elements": 2000},), stash_bytes_per_sample=0.0)]
    layers += [linear(name, 16, 16, stash_bytes_per_sample=0.0) for name in "abcd"]
    board = fpga(on_chip_bytes=4 * 1030, off_chip_bandwidth_bytes_per_s=2000.0)
    made = request(layers, board, 2, microbatch_sizes=(1,), schedules=("1f1b",), idle_devices=False)
    found = plan(made)
    assert [stage.layers for stage in found.stages] == [("slow", "a", "b"), ("c", "d")]


def test_layers_without_shapes_are_named_before_the_search() -> None:
    made = asked(layers=[*LAYERS[:7], Layer(id="h", kind="FFT")])
    with pytest.raises(InvalidInputError, match="missing_shape"):
        plan(made)


def test_sizes_of_other_numbers_are_warned_about() -> None:
    board = SMALL.model_copy(update={"macs_per_dsp": {"fp16": 1.0}})
    warnings = validate(asked(board, dtype="fp16"))
    assert any("sizes are of numbers of 4 bytes, and fp16 has 2" in warning for warning in warnings)
    assert not any("changes no time" in warning for warning in warnings)
    assert not any("sizes are" in warning for warning in validate(asked()))
