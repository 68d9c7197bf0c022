"""Seconds of a phase on the arrays of an FPGA, and the bytes that they move on the chip."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from bapipe.cost.fpga.phases import Phase, Product
from bapipe.operators import OperatorKind
from bapipe.problem import DType, Fpga

ELEMENT_BYTES: dict[DType, int] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}


@dataclass(frozen=True)
class Arrays:
    """The arrays of one engine that has `share` of an FPGA's slices, for numbers of type `dtype`.

    `count` = floor(slices · share · MACs a slice / (input lanes · output lanes)). Where that is 0 one array is made of
    what there is, and takes `slowdown` cycles for one.
    """

    fpga: Fpga
    dtype: DType
    share: float = 1.0

    @property
    def macs_per_cycle(self) -> float:
        """Multiply-accumulates of all slices in a cycle."""
        return self.fpga.dsp_slices * self.share * self.fpga.macs_per_dsp[self.dtype]

    @property
    def count(self) -> int:
        """Whole arrays, at least one."""
        return max(1, int(self.macs_per_cycle / self._lanes * (1 + _ROUNDING)))

    @property
    def slowdown(self) -> float:
        """Cycles that a cycle of the arrays takes."""
        return max(1.0, self._lanes / self.macs_per_cycle)

    @property
    def _lanes(self) -> int:
        return self.fpga.input_lanes * self.fpga.output_lanes

    def tiles(self, product: Product, samples: int) -> int:
        """Array cycles: rows · turns · ⌈inputs / input lanes⌉ · ⌈outputs / output lanes⌉.

        A product whose inputs or outputs do not fill the lanes takes as long as one that does.
        """
        tiles = ceil(product.inputs / self.fpga.input_lanes) * ceil(product.outputs / self.fpga.output_lanes)
        return product.rows * samples * product.turns * tiles

    def seconds(self, phase: Phase, kind: OperatorKind, samples: int) -> float:
        """Cycles / (clock · efficiency): tiles are shared by the arrays, part by part where parts wait for each other.

        Any array takes any tile; sums that several arrays make of one output are added as they leave. Element-wise
        operations follow, `elementwise_lanes` of the engine's share a cycle.
        """
        cycles = 0.0
        for product in phase.products:
            part = ceil(self.tiles(product, samples) / product.waits / self.count)
            cycles += product.waits * part * self.slowdown
        cycles /= self.fpga.efficiency.get(kind, 1.0)
        cycles += phase.operations * samples / (self.fpga.elementwise_lanes * self.share)
        return cycles / self.fpga.clock_hz

    def least_seconds(self, phase: Phase, kind: OperatorKind, samples: int) -> float:
        """`seconds` if slices could be shared out one by one; what no part of the arrays beats."""
        cycles = sum(self.tiles(product, samples) for product in phase.products) * self._lanes / self.macs_per_cycle
        cycles /= self.fpga.efficiency.get(kind, 1.0)
        return (cycles + phase.operations * samples / (self.fpga.elementwise_lanes * self.share)) / self.fpga.clock_hz

    def on_chip_bytes(self, phase: Phase, samples: int) -> float:
        """Bytes between on-chip memory and the arrays: a tile reads a row of inputs, and reads and writes the sums of
        its outputs; weights wait in registers. An element-wise operation moves one element.
        """
        lanes = self.fpga.input_lanes + 2 * self.fpga.output_lanes
        moved = sum(self.tiles(product, samples) for product in phase.products) * lanes
        return (moved + phase.operations * samples) * ELEMENT_BYTES[self.dtype]


_ROUNDING = 1e-9
"""Half of an even number of arrays is not one less for the rounding of a share."""
