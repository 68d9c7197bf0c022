"""What a layer of a known shape computes, moves and keeps, and from that its times on a device kind.

A layer is a sequence of kernels. Each takes its roofline time: once in the forward; in the backward once for the
gradient of what it read (twice for a product of two activations) and once for the gradient of its weights.

Counts are of elements and of one sample unless they say otherwise; everything is in 32 bits.

What a layer keeps for its backward (`kept_bytes`) follows PyTorch: a tensor counts for the layer that made it, when it
or a reader needs it again, so that what a stage receives from the stage before counts as received, not twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bapipe.cost.roofline import Efficiency, roofline_s
from bapipe.operators import Operator
from bapipe.presets import device_kinds
from bapipe.problem import DeviceKind, DType, Edge, Layer, LayerTime, ModelProfile

ELEMENT_BYTES = 4
DTYPE: DType = "fp32"
KINDS = ("V100-16G", "A100-40G", "A100-80G", "H100")
MICROBATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)

EFFICIENCY = Efficiency(compute=0.81, memory=0.83)
"""Memory: a device-to-device copy on a V100-SXM2 moves about 750 of 900 GB/s (ginkgo-project/ginkgo issue 164).
Compute: with it, ResNet-50 on a V100 trains at the 367 images a second that NVIDIA publishes for 32 bits (NVIDIA
DeepLearningExamples, PyTorch ResNet50 v1.5, training performance on DGX-1 16GB, one GPU). Taken for every kind."""

TIME_DIGITS = 5


@dataclass(frozen=True)
class Kernel:
    """One kernel, and how often it runs: in the forward, in the backward for the gradients of what it read, and for
    that of its weights. `weight_reads`: how often one run reads its weights.
    """

    flops: float
    reads: float
    writes: float
    weights: float = 0.0
    weight_reads: float = 1.0
    forward: int = 1
    input_gradients: int = 1
    weight_gradients: int = 0


@dataclass(frozen=True)
class Work:
    """A layer before its times: what it is, its kernels and operators, parameters, output, and bytes kept for the
    backward.
    """

    id: str
    kind: str
    kernels: tuple[Kernel, ...]
    operators: tuple[Operator, ...]
    parameters: int
    output: float
    kept_bytes: float
    streamable: bool = False
    kv_bytes_per_token: float = 0.0


def matmul(inputs: float, outputs: float, weights: float, flops: float, *, first: bool = False) -> Kernel:
    """A product of activations with weights. The `first` layer of a network needs no gradient of its input."""
    return Kernel(flops, inputs, outputs, weights, input_gradients=0 if first else 1, weight_gradients=1)


def product(reads: float, writes: float, flops: float) -> Kernel:
    """A product of two activations, as of queries with keys."""
    return Kernel(flops, reads, writes, input_gradients=2)


def pointwise(reads: float, writes: float, flops: float | None = None, weights: float = 0.0) -> Kernel:
    """One pass over memory. The gradients of a norm's few weights come with that of its input."""
    return Kernel(writes if flops is None else flops, reads, writes, weights)


def network(
    name: str, works: Sequence[Work], source: str, *, edges: Sequence[Edge] | None = None, warnings: Sequence[str] = ()
) -> ModelProfile:
    """The profile of layers in their order; `edges` None: a chain. `source` says whose network it is."""
    shares = f"{EFFICIENCY.compute:.0%} of peak FLOP/s and {EFFICIENCY.memory:.0%} of memory bandwidth"
    return ModelProfile(
        name=name,
        layers=tuple(layer(work) for work in works),
        edges=None if edges is None else tuple(edges),
        bytes_per_parameter=ELEMENT_BYTES,
        source=" ".join(f"{source} Times: roofline in {DTYPE} at {shares}.".split()),
        warnings=("times are computed by a roofline, not measured", *warnings),
    )


def layer(work: Work) -> Layer:
    """`work` as a layer, with times on every kind of `KINDS` at every size of `MICROBATCH_SIZES`."""
    kinds = device_kinds()
    return Layer(
        id=work.id,
        kind=work.kind,
        times=tuple(_time(work.kernels, kinds[name], size) for name in KINDS for size in MICROBATCH_SIZES),
        forward_flops_per_sample=float(sum(kernel.forward * kernel.flops for kernel in work.kernels)),
        parameter_bytes=work.parameters * ELEMENT_BYTES,
        output_bytes_per_sample=work.output * ELEMENT_BYTES,
        stash_bytes_per_sample=float(work.kept_bytes),
        kv_bytes_per_token=work.kv_bytes_per_token,
        streamable=work.streamable,
        operators=work.operators,
    )


def _time(kernels: Sequence[Kernel], kind: DeviceKind, size: int) -> LayerTime:
    seconds = [_seconds(kernel, kind, size) for kernel in kernels]
    forward = sum(kernel.forward * each for kernel, each in zip(kernels, seconds, strict=True))
    inputs = _rounded(sum(kernel.input_gradients * each for kernel, each in zip(kernels, seconds, strict=True)))
    weights = _rounded(sum(kernel.weight_gradients * each for kernel, each in zip(kernels, seconds, strict=True)))
    return LayerTime(
        device_kind=kind.name,
        microbatch_size=size,
        forward_s=_rounded(forward),
        backward_s=_rounded(inputs + weights, TIME_DIGITS + 3),
        input_gradient_s=inputs,
        weight_gradient_s=weights,
    )


def _seconds(kernel: Kernel, kind: DeviceKind, size: int) -> float:
    """A gradient kernel moves what the forward moved, in other directions, and does as many operations."""
    moved = kernel.weights * kernel.weight_reads + (kernel.reads + kernel.writes) * size
    return roofline_s(kind, DTYPE, kernel.flops * size, moved * ELEMENT_BYTES, EFFICIENCY)


def _rounded(seconds: float, digits: int = TIME_DIGITS) -> float:
    return float(f"{seconds:.{digits}g}")
