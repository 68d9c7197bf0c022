"""The roofline's two regimes, and what carrying a time from one kind to another multiplies it by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bapipe.cost.roofline import Efficiency, is_compute_bound, missing_figures, roofline_s, scale
from bapipe.presets import device_kinds
from bapipe.problem import DeviceKind, Layer

SLOW = DeviceKind(
    name="slow", peak_flops={"fp32": 10e12}, memory_bandwidth_bytes_per_s=500e9, launch_overhead_s=1e-6
)  # fmt: skip
FAST = DeviceKind(name="fast", peak_flops={"fp32": 40e12}, memory_bandwidth_bytes_per_s=1000e9)
CONV = Layer(id="a", kind="Conv2d(3, 64)")
RELU = Layer(id="a", kind="ReLU(inplace)")


def test_compute_bounds_a_kernel_of_many_operations() -> None:
    assert roofline_s(SLOW, "fp32", 10e12, 1.0) == pytest.approx(1.0 + 1e-6)


def test_memory_bounds_a_kernel_of_many_bytes() -> None:
    assert roofline_s(SLOW, "fp32", 1.0, 500e9) == pytest.approx(1.0 + 1e-6)


def test_efficiencies_divide_the_peaks() -> None:
    half = Efficiency(compute=0.5, memory=0.25)
    assert roofline_s(FAST, "fp32", 40e12, 1.0, half) == pytest.approx(2.0)
    assert roofline_s(FAST, "fp32", 1.0, 1000e9, half) == pytest.approx(4.0)


def test_an_empty_kernel_is_its_launch() -> None:
    assert roofline_s(SLOW, "fp32", 0.0, 0.0) == SLOW.launch_overhead_s


def test_a_kind_without_a_needed_figure_is_refused() -> None:
    reference = device_kinds()["reference"]
    with pytest.raises(ValueError, match="no peak FLOP/s for fp32"):
        roofline_s(reference, "fp32", 1.0, 0.0)
    with pytest.raises(ValueError, match="no memory bandwidth"):
        roofline_s(reference, "fp32", 0.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "compute"),
    [
        ("Conv2d(384, 256, kernel_size=(3, 3))", True),
        ("ConvTranspose2d(8, 8)", True),
        ("Linear(in_features=9216)", True),
        ("LSTM(2048, 1024)", True),
        ("EmuBidirLSTM(  (bidir): LSTM(1024, 1024))", True),
        ("RecurrentAttention(  (rnn): LSTM(1024, 1024))", True),
        ("ReLU(inplace)", False),
        ("BatchNorm2d(512)", False),
        ("Embedding(32320, 1024)", False),
        ("Dropout of a Linear(3)", False),
        ("", False),
    ],
)
def test_the_first_word_of_a_kind_says_what_bounds_it(kind: str, compute: bool) -> None:
    assert is_compute_bound(Layer(id="a", kind=kind)) is compute


def test_without_flops_times_go_by_the_peak_that_bounds_the_layer() -> None:
    assert scale(CONV, SLOW, FAST) == pytest.approx(1 / 4)
    assert scale(RELU, SLOW, FAST) == pytest.approx(1 / 2)


def test_with_flops_times_go_by_the_roofline() -> None:
    heavy = CONV.model_copy(update={"forward_flops_per_sample": 1e12})
    light = CONV.model_copy(update={"forward_flops_per_sample": 1.0, "output_bytes_per_sample": 1e6})
    assert scale(heavy, SLOW, FAST) == pytest.approx(1 / 4)
    assert scale(light, SLOW, FAST) == pytest.approx(1 / 2)


def test_a_layer_that_changes_its_bound_goes_by_each_kinds_own() -> None:
    """200 MFLOPs and 8 MB: compute bounds the slow kind, memory the fast one."""
    layer = Layer(id="a", forward_flops_per_sample=200e6, output_bytes_per_sample=4e6)
    before, after = max(200e6 / 10e12, 8e6 / 500e9), max(200e6 / 40e12, 8e6 / 1000e9)
    assert before == 200e6 / 10e12
    assert after == 8e6 / 1000e9
    assert scale(layer, SLOW, FAST) == pytest.approx(after / before)


def test_a_kind_without_figures_leaves_times_as_they_are() -> None:
    reference = device_kinds()["reference"]
    assert missing_figures(reference, "fp32") == ["peak_flops of fp32", "memory_bandwidth_bytes_per_s"]
    assert missing_figures(FAST, "fp32") == []
    assert scale(CONV, SLOW, reference) == scale(RELU, reference, FAST) == 1.0


def test_a_layer_that_does_nothing_is_not_scaled() -> None:
    assert scale(Layer(id="a", forward_flops_per_sample=0.0), SLOW, FAST) == 1.0


@given(
    st.floats(0, 1e15),
    st.floats(0, 1e9),
    st.integers(0, 10**9),
    st.integers(1, 128),
    st.sampled_from(["Conv2d", "ReLU"]),
    st.booleans(),
)
def test_there_and_back_is_the_same_time(
    flops: float, output: float, weights: int, size: int, kind: str, known: bool
) -> None:
    layer = Layer(
        id="a",
        kind=kind,
        parameter_bytes=weights,
        output_bytes_per_sample=output,
        forward_flops_per_sample=flops if known else None,
    )
    there, back = scale(layer, SLOW, FAST, "fp32", size), scale(layer, FAST, SLOW, "fp32", size)
    assert there * back == pytest.approx(1.0)
    assert 1 / 4 - 1e-9 <= there <= 1.0
