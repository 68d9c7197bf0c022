"""Joules of what an FPGA computes and moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bapipe.cost.fpga.demand import ByPhase, Demand
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


@dataclass(frozen=True)
class Executed:
    """How often each phase of a layer, or of several that run as one, was executed; `moved` are its bytes off chip."""

    layer: Demand
    moved: ByPhase
    times: tuple[int, int, int]

    @property
    def off_chip_bytes(self) -> float:
        """Bytes off chip in all."""
        return self.of(self.moved)

    def of(self, value: ByPhase) -> float:
        """A value by phase, as often as each phase was executed."""
        return sum(times * each for times, each in zip(self.times, value, strict=True))


def executed_energy(fpga: Fpga, dtype: DType, executed: Sequence[Executed], optimizer_bytes: float = 0.0) -> Energy:
    """What was executed on a board, and what the optimizer moves off chip."""
    price = fpga.energy
    return Energy(
        macs_j=sum(each.of(each.layer.macs) for each in executed) * price.mac_j.get(dtype, 0.0),
        elementwise_j=sum(each.of(each.layer.operations) for each in executed) * price.elementwise_j,
        on_chip_j=sum(each.of(each.layer.on_chip_bytes) for each in executed) * price.on_chip_j_per_byte,
        off_chip_j=(sum(each.off_chip_bytes for each in executed) + optimizer_bytes) * price.off_chip_j_per_byte,
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
