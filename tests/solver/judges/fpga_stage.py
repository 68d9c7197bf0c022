"""A stage on an FPGA, worked out from scratch: every subset of what may stay on the chip, convolutions and linear
layers only. Shares no code with `bapipe.cost.fpga`; the layers are a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, inf

from bapipe.problem import Fpga, Layer


@dataclass
class Board:
    """The figures of an FPGA that the judge reads."""

    fpga: Fpga
    macs_per_slice: float
    share: float = 1.0

    def cycles(self, layer: Layer, samples: int, phase: str) -> float:
        total = 0.0
        for op in layer.operators or ():
            if op.kind == "elementwise":
                if phase != "W":
                    total += op.elements * op.operations * samples / (self.fpga.elementwise_lanes * self.share)
                continue
            if op.kind == "linear":
                repeats, rows, a, b = 1, op.rows, op.in_features, op.out_features
            else:
                assert op.kind == "convolution"
                repeats, rows, a, b = op.kernel_positions, op.out_pixels, op.in_channels, op.out_channels
            if phase == "I":
                if not op.input_gradient:
                    continue
                a, b = b, a
            tiles = ceil(a / self.fpga.input_lanes) * ceil(b / self.fpga.output_lanes) * repeats * rows * samples
            lanes = self.fpga.input_lanes * self.fpga.output_lanes
            available = self.fpga.dsp_slices * self.macs_per_slice * self.share
            arrays = max(1, int(available // lanes))
            slower = lanes / available if available < lanes else 1.0
            total += ceil(tiles / arrays) * slower / self.fpga.efficiency.get(op.kind, 1.0)
        return total


def best_stage(
    board: Board, layers: list[Layer], reader: Layer | None, samples: int, input_bytes: float, in_flight: int
) -> tuple[float, int]:
    """(least seconds of a micro-batch, forward and backward; number of subsets tried). `reader`: the layer behind."""
    fpga = board.fpga
    buffers = fpga.on_chip_bytes // 8 if fpga.buffer_bytes is None else fpga.buffer_bytes
    free = (fpga.on_chip_bytes - buffers) // fpga.memory_block_bytes
    rate = fpga.off_chip_bandwidth_bytes_per_s * fpga.off_chip_efficiency
    groups, sizes = _groups(layers, reader, samples, input_bytes, in_flight, buffers)
    blocks = [ceil(size / fpga.memory_block_bytes) for size in sizes]
    best, tried = inf, 0
    for kept in product((False, True), repeat=len(sizes)):
        if sum(block for block, stays in zip(blocks, kept, strict=True) if stays) > free:
            continue
        tried += 1
        seconds = 0.0
        for members, fixed, moved in groups:
            for number, phase in enumerate("FIW"):
                compute = sum(board.cycles(layer, samples, phase) for layer in members) / fpga.clock_hz
                traffic = fixed[number] + sum(each[number] for item, each in moved.items() if not kept[item])
                seconds += max(compute, traffic / rate)
        best = min(best, seconds)
    return best, tried


Moved = dict[int, tuple[float, float, float]]


def _groups(
    layers: list[Layer], reader: Layer | None, samples: int, input_bytes: float, in_flight: int, buffers: int
) -> tuple[list[tuple[list[Layer], list[float], Moved]], list[float]]:
    groups: list[tuple[list[Layer], list[float], Moved]] = []
    sizes: list[float] = []
    for k, layer in enumerate(layers):
        following = layers[k + 1] if k + 1 < len(layers) else reader
        if not (_streams(layer) and groups):
            groups.append(([], [0.0, 0.0, 0.0], {}))
        members, fixed, moved = groups[-1]
        members.append(layer)
        output = layer.output_bytes_per_sample * samples
        stash = output if layer.stash_bytes_per_sample is None else layer.stash_bytes_per_sample * samples
        hands = following is not None and not _streams(following) and 2 * output > buffers
        shared = min(stash, output) if hands else 0.0
        if hands:
            fixed[0] += 2 * (output - shared)
            fixed[1] += 2 * output
        weights = float(layer.parameter_bytes)
        if weights:
            first = not any(getattr(op, "input_gradient", True) for op in layer.operators or ())
            sizes.append(weights)
            moved[len(sizes) - 1] = (weights, 0.0 if first else weights, 0.0)
            sizes.append(weights)
            moved[len(sizes) - 1] = (0.0, 0.0, 2 * weights)
        if stash:
            sizes.append(stash * in_flight)
            moved[len(sizes) - 1] = (stash + shared, 0.0, stash) if weights else (stash + shared, stash, 0.0)
        if k == 0 and input_bytes:
            sizes.append(input_bytes * in_flight)
            moved[len(sizes) - 1] = (2 * input_bytes, 0.0, input_bytes)
    return groups, sizes


def _streams(layer: Layer) -> bool:
    return all(op.kind in ("elementwise", "pooling") for op in layer.operators or ())
