"""What stays on the chip, against every subset, and closed forms of a layer bound by compute or by memory."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.cost.fpga.demand import fused
from bapipe.cost.fpga.residency import Chip, Residency
from bapipe.cost.fpga.stage import Setting
from bapipe.cost.fpga.table import FpgaTable
from bapipe.errors import InvalidInputError
from bapipe.faults import parse
from bapipe.problem import Fpga, Layer, ModelProfile, TiedParameters
from judges.boards import convolution, fpga, linear, relu, request
from judges.fpga_stage import Board, best_stage


def stage(
    layers: list[Layer], board: Fpga, samples: int = 1, input_bytes: float = 0.0, in_flight: int = 1
) -> Residency:
    asked = request(layers, board)
    return FpgaTable(asked, samples).stage(
        [x.id for x in layers], asked.cluster.devices[0], input_bytes, Setting(in_flight)
    )


def seconds(residency: Residency) -> list[float]:
    return [sum(each[phase] for each in residency.seconds) for phase in range(3)]


def test_a_layer_that_fits_the_chip_is_bound_by_compute() -> None:
    """16 × 16: 256 MACs, 64 a cycle at 1 kHz: 4 ms a phase; weights and gradients of 1,024 bytes each fit."""
    layer = linear("a", 16, 16)
    found = stage([layer], fpga(on_chip_bytes=4000))
    assert seconds(found) == pytest.approx([0.004, 0.004, 0.004])
    assert found.off_chip_bytes == ((0.0, 0.0, 0.0),)
    assert [item.name for item in found.resident[0]] == ["weights", "gradients", "stash"]
    assert found.held_bytes == 2 * 1030 + 70, "whole blocks of 10 bytes"


def test_a_layer_that_does_not_fit_is_bound_by_memory() -> None:
    """Forward and input gradient read 1,024 bytes of weights, the weight gradient reads and writes as many; the stash
    of 64 bytes is written and read: at 1,000 bytes a second.
    """
    found = stage([linear("a", 16, 16)], fpga(on_chip_bytes=0))
    assert seconds(found) == pytest.approx([1.024 + 0.064, 1.024, 2.048 + 0.064])


def test_what_a_stage_receives_is_kept_too() -> None:
    found = stage([linear("a", 16, 16, stash_bytes_per_sample=0.0)], fpga(on_chip_bytes=0), input_bytes=100.0)
    assert seconds(found) == pytest.approx([1.024 + 0.2, 1.024, 2.048 + 0.1])
    assert [item.name for item in found.layers[0].items] == ["weights", "gradients", "input"]


def test_tied_weights_take_room_as_a_layer_s_own_do() -> None:
    own = [linear("a", 16, 16), linear("b", 16, 16)]
    shared = [each.model_copy(update={"parameter_bytes": 0}) for each in own]
    board = fpga(on_chip_bytes=3000)
    tied = ModelProfile(
        name="tied", layers=tuple(shared), tied_parameters=(TiedParameters(layers=("a", "b"), parameter_bytes=1024),)
    )
    asked = request(own, board)
    as_tied = asked.model_copy(update={"profile": tied})
    apart, together = (
        FpgaTable(each, 1).stage(["a", "b"], each.cluster.devices[0], 0.0, Setting()) for each in (asked, as_tied)
    )
    assert together == apart


def test_stashes_take_room_for_each_micro_batch_in_flight() -> None:
    layer = relu("a", 10)
    for in_flight, stays in ((1, True), (5, True), (6, False)):
        assert bool(stage([layer], fpga(on_chip_bytes=200), in_flight=in_flight).resident[0]) == stays


def test_the_layer_with_the_most_reuse_stays() -> None:
    """Compute hides the traffic of the first layer, which has 64 rows to a matrix; not that of the second."""
    many = linear("many", 16, 16, stash_bytes_per_sample=0.0)
    operators = ({"kind": "linear", "in_features": 16, "out_features": 16, "rows": 4096},)
    busy = Layer.model_validate(many.model_dump() | {"id": "busy", "operators": operators})
    found = stage([busy, many], fpga(on_chip_bytes=2100))
    assert [[item.name for item in items] for items in found.resident] == [[], ["weights", "gradients"]]


def test_in_stream_layers_hide_behind_what_they_follow() -> None:
    """The ReLU's stash goes off chip while the product is computed."""
    layer = linear("a", 16, 16, stash_bytes_per_sample=0.0, parameter_bytes=0, operators=(
        {"kind": "linear", "in_features": 16, "out_features": 16, "rows": 64},
    ))  # fmt: skip
    board = fpga(on_chip_bytes=0, off_chip_bandwidth_bytes_per_s=1e5)
    apart = seconds(stage([relu("b", 64)], board))
    together = seconds(stage([layer, relu("b", 64)], board))
    alone = seconds(stage([layer], board))
    assert apart[0] > 0
    assert together[0] == pytest.approx(alone[0] + 64 / 16 / 1000), "its operations, not its traffic"


def in_stream(count: int) -> list[Layer]:
    """A product and so many layers behind it, whose stashes all differ."""
    return [linear("a", 16, 16), *(relu(f"b{k}", 20 + 2**k % 97 + k) for k in range(count))]


def test_what_stays_of_many_layers_in_stream_is_the_best_subset() -> None:
    """2^9 subsets, hundreds of which no other beats."""
    layers, asked = in_stream(6), request(in_stream(6), fpga())
    for memory in (0, 500, 900, 1700, 5000):
        board = fpga(on_chip_bytes=memory)
        demands = FpgaTable(asked, 1).demands(asked.cluster.devices[0])
        chip = Chip(memory // 10, 10, 1000.0)
        (whole,) = fused(demands)
        subsets = (s for n in range(len(whole.items) + 1) for s in combinations(whole.items, n))
        fitting = [s for s in subsets if sum(chip.blocks_of(each.size_bytes) for each in s) <= chip.blocks]
        best_s = min(sum(whole.seconds(s, 1000.0)) for s in fitting)
        assert sum(seconds(stage(layers, board))) == pytest.approx(best_s)


def test_any_number_of_layers_may_work_in_stream() -> None:
    """Neighbours stay together where there are too many: within the chip, and faster the larger it is."""
    layers, last_s = in_stream(200), float("inf")
    for memory in (0, 3000, 9000, 30_000, 300_000):
        found = stage(layers, fpga(on_chip_bytes=memory))
        assert found.held_bytes <= memory
        assert sum(seconds(found)) <= last_s
        last_s = sum(seconds(found))
    assert sum(map(sum, found.off_chip_bytes)) == 0.0


def test_what_does_not_fit_the_buffers_is_handed_on_off_chip() -> None:
    layers = [linear("a", 16, 16, stash_bytes_per_sample=0.0), linear("b", 16, 16, stash_bytes_per_sample=0.0)]
    small, large = (stage(layers, fpga(on_chip_bytes=1000, buffer_bytes=size)) for size in (127, 128))
    handed = [a - b for a, b in zip(small.off_chip_bytes[0], large.off_chip_bytes[0], strict=True)]
    assert handed == [128.0, 128.0, 0.0], "64 bytes written and read, forward and backward"


def test_inference_reads_weights_only() -> None:
    asked = request([linear("a", 16, 16)], fpga(on_chip_bytes=0), task="inference")
    found = FpgaTable(asked, 1).stage(["a"], asked.cluster.devices[0], 50.0, Setting())
    assert found.off_chip_bytes == ((1024.0 + 100.0, 0.0, 0.0),)


def test_a_layer_without_a_shape_is_named_with_its_kind() -> None:
    asked = request([linear("a", 4, 4), Layer(id="b", kind="FFT")], fpga())
    with pytest.raises(InvalidInputError) as caught:
        FpgaTable(asked, 1).demands(asked.cluster.devices[0])
    (fault,) = caught.value.faults
    assert (fault.code, fault.pointer) == ("missing_shape", "/profile/layers/1/operators")
    assert "'FFT'" in fault.detail


def test_a_kind_of_operator_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(ModelProfile, {"name": "m", "layers": [{"id": "a", "operators": [{"kind": "fft"}, {"in_features": 3}]}]})
    unknown, missing = caught.value.faults
    assert (unknown.code, unknown.pointer) == ("unknown_value", "/layers/0/operators/0/kind")
    assert "no kind 'fft'" in unknown.detail
    assert "'convolution'" in unknown.detail
    assert (missing.code, missing.pointer) == ("missing", "/layers/0/operators/1/kind")


def test_a_fault_in_an_operator_points_to_its_field() -> None:
    operators = [
        {"kind": "linear", "in_features": 0, "out_features": 3},
        {
            "kind": "convolution",
            "in_channels": 6,
            "out_channels": 4,
            "kernel_positions": 9,
            "out_pixels": 4,
            "groups": 4,
        },
    ]
    with pytest.raises(InvalidInputError) as caught:
        parse(ModelProfile, {"name": "m", "layers": [{"id": "a", "operators": operators}]})
    assert [(fault.code, fault.pointer) for fault in caught.value.faults] == [
        ("too_small", "/layers/0/operators/0/in_features"),
        ("does_not_divide", "/layers/0/operators/1/groups"),
    ]


def test_numbers_for_which_the_slices_have_no_rate_are_refused() -> None:
    asked = request([linear("a", 4, 4)], fpga(), dtype="fp16")
    with pytest.raises(InvalidInputError) as caught:
        FpgaTable(asked, 1).demands(asked.cluster.devices[0])
    assert [(fault.code, fault.pointer) for fault in caught.value.faults] == [("missing_rate", "/dtype")]


sizes = st.sampled_from([1, 2, 3, 4, 5, 8, 9])


@st.composite
def chains(draw: st.DrawFn) -> list[Layer]:
    layers: list[Layer] = []
    for number in range(draw(st.integers(1, 4))):
        name, stash = f"l{number}", draw(st.sampled_from([None, 0.0, 12.0, 100.0]))
        made = draw(st.integers(0, 2))
        if made == 0:
            layers.append(linear(name, draw(sizes), draw(sizes), stash_bytes_per_sample=stash))
        elif made == 1:
            layers.append(relu(name, draw(sizes) * 5, stash_bytes_per_sample=stash))
        else:
            layers.append(convolution(name, draw(sizes), draw(sizes), 9, 2, stash_bytes_per_sample=stash))
    return layers


boards = st.builds(
    lambda chip, rate, slices, buffers: fpga(
        on_chip_bytes=chip + buffers, off_chip_bandwidth_bytes_per_s=rate, dsp_slices=slices, buffer_bytes=buffers
    ),
    st.integers(0, 1200),
    st.sampled_from([1e3, 2e4, 1e5, 1e6]),
    st.sampled_from([5, 16, 40, 64]),
    st.sampled_from([0, 30, 200]),
)


@settings(max_examples=150, deadline=None)
@given(chains(), boards, st.integers(1, 3), st.sampled_from([0.0, 40.0]), st.integers(1, 4))
def test_no_subset_is_faster(
    layers: list[Layer], board: Fpga, samples: int, input_bytes: float, in_flight: int
) -> None:
    found = stage(layers, board, samples, input_bytes, in_flight)
    best, _ = best_stage(Board(board, 1.0), layers, None, samples, input_bytes, in_flight)
    assert sum(seconds(found)) == pytest.approx(best, rel=1e-8)
    assert found.held_bytes + (board.buffer_bytes or 0) <= board.on_chip_bytes


@settings(max_examples=60, deadline=None)
@given(chains(), boards, st.data())
def test_more_of_anything_is_never_slower(layers: list[Layer], board: Fpga, data: st.DataObject) -> None:
    field = data.draw(
        st.sampled_from(
            ["dsp_slices", "on_chip_bytes", "off_chip_bandwidth_bytes_per_s", "elementwise_lanes", "clock_hz"]
        )
    )
    more: Any = getattr(board, field) * data.draw(st.integers(2, 3)) + 1
    better = board.model_copy(update={field: more})
    assert sum(seconds(stage(layers, better))) <= sum(seconds(stage(layers, board))) * (1 + 1e-8)
