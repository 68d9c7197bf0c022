"""Cycles against formulas worked out by hand, and what more of anything may do."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bapipe.cost.fpga.arrays import Arrays
from bapipe.cost.fpga.phases import Phase, Product, phases_of
from bapipe.examples import load_example
from bapipe.operators import Attention, Convolution, Elementwise, Embedding, Lstm, Normalisation, Pooling
from judges.boards import fpga

CONV = Convolution(kind="convolution", in_channels=8, out_channels=12, kernel_positions=9, out_pixels=25)


def seconds(operator: object, phase: int, samples: int = 1, **figures: object) -> float:
    parts = phases_of(operator)  # type: ignore[arg-type]
    return Arrays(fpga(**figures), "fp32").seconds(parts.each[phase], parts.kind, samples)


def test_a_convolution_that_fills_the_lanes_takes_its_macs_over_those_of_a_cycle() -> None:
    """64 slices are 4 arrays of 4 × 4: 64 MACs a cycle, of 8 · 12 · 9 · 25 a sample."""
    assert seconds(CONV, 0, samples=3) == pytest.approx(ceil(3 * 8 * 12 * 9 * 25 / 64) / 1000)
    assert seconds(CONV, 1) == seconds(CONV, 2) == seconds(CONV, 0)


def test_channels_that_do_not_fill_the_lanes_take_as_long_as_if_they_did() -> None:
    narrow = CONV.model_copy(update={"in_channels": 5})
    assert seconds(narrow, 0) == seconds(CONV, 0)
    one_more = CONV.model_copy(update={"in_channels": 9})
    assert seconds(one_more, 0) == pytest.approx(1.5 * seconds(CONV, 0), rel=0.01)


def test_groups_are_narrow_convolutions_side_by_side() -> None:
    """Depthwise: 8 groups of 1 × 1 channels, each a tile of its own."""
    depthwise = Convolution(
        kind="convolution", in_channels=8, out_channels=8, kernel_positions=9, out_pixels=25, groups=8
    )
    assert seconds(depthwise, 0) == ceil(25 * 9 * 8 / 4) / 1000
    assert phases_of(depthwise).forward.products[0].macs == 25 * 9 * 8


def test_the_first_layer_has_no_gradient_of_its_input() -> None:
    first = CONV.model_copy(update={"input_gradient": False})
    assert seconds(first, 1) == 0.0
    assert seconds(first, 2) == seconds(CONV, 2)


def test_the_steps_of_an_lstm_wait_for_each_other() -> None:
    """Inputs: 10 · 8 rows of ⌈6/4⌉ · ⌈16/4⌉ tiles over 4 arrays. Recurrence: 10 steps, each of ⌈8 · 1 · 4 / 4⌉ cycles
    forward. Cells: 30 · 4 · 10 · 8 operations, 16 a cycle. The weight gradient waits for nothing.
    """
    lstm = Lstm(kind="lstm", in_features=6, hidden=4, steps=10)
    cells = 30 * 4 * 10 * 8 / 16
    assert seconds(lstm, 0, samples=8) == pytest.approx((10 * 8 * 2 * 4 / 4 + 10 * 8 + cells) / 1000)
    assert seconds(lstm, 2, samples=8) == pytest.approx((10 * 8 * 2 * 4 / 4 + 10 * 8 * 4 / 4) / 1000)
    few = seconds(lstm, 0, dsp_slices=64) - cells / 8000
    assert few == pytest.approx((ceil(10 * 2 * 4 / 4) + 10 * 1) / 1000), "one row a step leaves no array idle"


def test_attention_computes_twice_as_much_backward_and_has_no_weights() -> None:
    parts = phases_of(Attention(kind="attention", queries=8, keys=12, heads=2, head_features=4))
    forward = sum(product.macs for product in parts.forward.products)
    assert forward == 2 * 8 * 12 * 4 * 2
    assert sum(product.macs for product in parts.input_gradient.products) == 2 * forward
    assert parts.weight_gradient == Phase()


@pytest.mark.parametrize(
    ("operator", "operations"),
    [
        (Elementwise(kind="elementwise", elements=48, operations=2), (96, 96, 0)),
        (Normalisation(kind="normalisation", elements=10), (80, 80, 0)),
        (Pooling(kind="pooling", out_elements=7, window=4), (28, 28, 0)),
        (Embedding(kind="embedding", lookups=5, width=8), (40, 0, 40)),
    ],
)
def test_element_wise_operators_take_the_lanes_beside_the_arrays(
    operator: object, operations: tuple[int, int, int]
) -> None:
    expected = [count / 16 / 1000 for count in operations]
    assert [seconds(operator, phase) for phase in range(3)] == pytest.approx(expected)


def test_an_efficiency_holds_for_its_kind_of_operator() -> None:
    assert seconds(CONV, 0, efficiency={"convolution": 0.5}) == 2 * seconds(CONV, 0)
    assert seconds(CONV, 0, efficiency={"linear": 0.5}) == seconds(CONV, 0)


def test_half_of_the_slices_are_half_of_the_arrays() -> None:
    """Also where the half is a rounding error short of it."""
    for share in (0.5, 1 - 0.5, 0.25 + 0.25 - 1e-16):
        assert Arrays(fpga(), "fp32", share).count == 2


def test_fewer_slices_than_an_array_needs_make_a_slower_one() -> None:
    assert seconds(CONV, 0, dsp_slices=8) == pytest.approx(2 * seconds(CONV, 0, dsp_slices=16))


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "gpt2-medium"])
def test_the_macs_of_an_example_are_those_of_its_operators(name: str) -> None:
    """FLOPs count element-wise operations too, which are few."""
    for layer in load_example(name).layers:
        macs = sum(product.macs for op in layer.operators or () for product in phases_of(op).forward.products)
        assert 2 * macs <= (layer.forward_flops_per_sample or 0.0)
        if macs:
            assert 2 * macs == pytest.approx(layer.forward_flops_per_sample, rel=0.1)


products = st.builds(Product, *[st.integers(1, 40)] * 3, turns=st.integers(1, 4))


@given(products, st.integers(1, 4), st.integers(1, 300), st.integers(1, 300))
def test_more_slices_are_never_slower(product: Product, samples: int, few: int, more: int) -> None:
    few, more = sorted((few, more))
    phase = Phase((product,))
    slow, fast = (Arrays(fpga(dsp_slices=count), "fp32").seconds(phase, "linear", samples) for count in (few, more))
    assert fast <= slow * (1 + 1e-12)


@given(products, st.integers(1, 4), st.integers(1, 200))
def test_no_phase_is_faster_than_all_slices_at_work(product: Product, samples: int, slices: int) -> None:
    arrays = Arrays(fpga(dsp_slices=slices), "fp32")
    least = product.macs * samples / (slices * 1000)
    assert arrays.seconds(Phase((product,)), "linear", samples) >= least * (1 - 1e-9)
