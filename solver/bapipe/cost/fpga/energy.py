"""Joules of what an FPGA computes and moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bapipe.cost.fpga.demand import ByPhase
from bapipe.cost.fpga.residency import Residency
from bapipe.problem import DType, Fpga


@dataclass(frozen=True)
class Energy:
    """Joules by cause: multiply-accumulates, element-wise operations, bytes on chip, off chip and on links, and what
    flows while nothing happens.
    """

    macs_j: float = 0.0
    elementwise_j: float = 0.0
    on_chip_j: float = 0.0
    off_chip_j: float = 0.0
    links_j: float = 0.0
    static_j: float = 0.0

    @property
    def total_j(self) -> float:
        """All of it."""
        dynamic_j = self.macs_j + self.elementwise_j + self.on_chip_j + self.off_chip_j
        return dynamic_j + self.links_j + self.static_j


def stage_energy(
    fpga: Fpga, dtype: DType, residency: Residency, forwards: int, backwards: int, optimizer_bytes: float = 0.0
) -> Energy:
    """So many forwards and backwards of a stage on a board, and what the optimizer moves off chip."""
    price, layers = fpga.energy, residency.layers

    def executed(values: Iterable[ByPhase]) -> float:
        return sum(forwards * forward + backwards * (inputs + weights) for forward, inputs, weights in values)

    return Energy(
        macs_j=executed(layer.macs for layer in layers) * price.mac_j.get(dtype, 0.0),
        elementwise_j=executed(layer.operations for layer in layers) * price.elementwise_j,
        on_chip_j=executed(layer.on_chip_bytes for layer in layers) * price.on_chip_j_per_byte,
        off_chip_j=(executed(residency.off_chip_bytes) + optimizer_bytes) * price.off_chip_j_per_byte,
    )


def link_energy(fpga: Fpga, size_bytes: float) -> Energy:
    """Bytes that a board sends."""
    return Energy(links_j=size_bytes * fpga.energy.link_j_per_byte)


def static_energy(fpga: Fpga, seconds: float) -> Energy:
    """A board over a time."""
    return Energy(static_j=fpga.energy.static_w * seconds)


def total(energies: Iterable[Energy]) -> Energy:
    """The sum, cause by cause."""
    rows = list(energies)
    names = ("macs_j", "elementwise_j", "on_chip_j", "off_chip_j", "links_j", "static_j")
    return Energy(**{name: sum(getattr(row, name) for row in rows) for name in names})
