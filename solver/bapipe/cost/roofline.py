"""Time of a layer by the roofline of a device kind, and measured times carried from one kind to another.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model" (CACM 52(4), 2009): work takes no
less time than its operations at peak rate, and no less than its bytes at peak bandwidth.

    t = max(FLOPs / (peak · compute efficiency), bytes / (bandwidth · memory efficiency)) + launch overhead
"""

from __future__ import annotations

from dataclasses import dataclass

from bapipe.problem import DeviceKind, DType, Layer

COMPUTE_BOUND = ("conv", "linear", "lstm", "gru", "rnn", "attention", "matmul", "gemm", "classifier")
"""What the first word of a layer kind contains, in lower case, when compute bounds the layer at peak rate."""


@dataclass(frozen=True)
class Efficiency:
    """The shares of peak FLOP/s and of peak memory bandwidth that kernels reach, each in (0, 1]."""

    compute: float = 1.0
    memory: float = 1.0


def roofline_s(
    kind: DeviceKind, dtype: DType, flops: float, traffic_bytes: float, efficiency: Efficiency = Efficiency()
) -> float:
    """Seconds of one kernel of `flops` that moves `traffic_bytes` to and from memory, launch included.

    Raises:
        ValueError: `kind` has no peak for `dtype`, or no memory bandwidth, where one is needed.
    """
    return _busy_s(kind, dtype, flops, traffic_bytes, efficiency) + kind.launch_overhead_s


def forward_bytes(layer: Layer, microbatch_size: int) -> float:
    """Bytes that a layer's forward moves at the least: its parameters once, its input and its output.

    A profile states no input; it is taken to be as large as the output.
    """
    return layer.parameter_bytes + 2.0 * layer.output_bytes_per_sample * microbatch_size


def scale(
    layer: Layer, measured_on: DeviceKind, kind: DeviceKind, dtype: DType = "fp32", microbatch_size: int = 1
) -> float:
    """What to multiply times of `layer` measured on `measured_on` by, to have them on `kind`.

    The ratio of the roofline times where the layer's FLOPs are known; else the ratio of peak FLOP/s for layers that
    compute bounds (`is_compute_bound`), and of memory bandwidth for the others. 1 where a kind lacks the figure
    (`missing_figures` says which).
    """
    if measured_on.name == kind.name:
        return 1.0
    flops = layer.forward_flops_per_sample
    if flops is not None and not missing_figures(measured_on, dtype) and not missing_figures(kind, dtype):
        work = (flops * microbatch_size, forward_bytes(layer, microbatch_size))
        before = _busy_s(measured_on, dtype, *work, Efficiency())
        return _busy_s(kind, dtype, *work, Efficiency()) / before if before else 1.0
    if is_compute_bound(layer):
        return _ratio(measured_on.peak_flops.get(dtype), kind.peak_flops.get(dtype))
    return _ratio(measured_on.memory_bandwidth_bytes_per_s, kind.memory_bandwidth_bytes_per_s)


def is_compute_bound(layer: Layer) -> bool:
    """Whether compute rather than memory bounds a layer of this kind, by the first word of `layer.kind`."""
    word = _first_word(layer.kind)
    return any(part in word for part in COMPUTE_BOUND)


def missing_figures(kind: DeviceKind, dtype: DType) -> list[str]:
    """The figures without which times cannot be carried to or from `kind`."""
    missing = [] if dtype in kind.peak_flops else [f"peak_flops of {dtype}"]
    return missing + ([] if kind.memory_bandwidth_bytes_per_s else ["memory_bandwidth_bytes_per_s"])


def _busy_s(kind: DeviceKind, dtype: DType, flops: float, traffic_bytes: float, efficiency: Efficiency) -> float:
    compute, memory = 0.0, 0.0
    if flops:
        if dtype not in kind.peak_flops:
            raise ValueError(f"device kind {kind.name!r} has no peak FLOP/s for {dtype}")
        compute = flops / (kind.peak_flops[dtype] * efficiency.compute)
    if traffic_bytes:
        if kind.memory_bandwidth_bytes_per_s is None:
            raise ValueError(f"device kind {kind.name!r} has no memory bandwidth")
        memory = traffic_bytes / (kind.memory_bandwidth_bytes_per_s * efficiency.memory)
    return max(compute, memory)


def _ratio(before: float | None, after: float | None) -> float:
    return before / after if before and after else 1.0


def _first_word(kind: str) -> str:
    word = ""
    for letter in kind.strip().lower():
        if not letter.isalpha():
            break
        word += letter
    return word
