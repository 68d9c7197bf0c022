"""Joules against sums by hand."""

from __future__ import annotations

import pytest

from bapipe.cost.fpga.energy import Executed, executed_energy, link_energy, static_energy, total
from bapipe.cost.fpga.stage import Setting
from bapipe.cost.fpga.table import FpgaTable
from bapipe.problem import FpgaEnergy
from judges.boards import fpga, linear, request

PRICES = FpgaEnergy(
    mac_j={"fp32": 1.0},
    elementwise_j=2.0,
    on_chip_j_per_byte=3.0,
    off_chip_j_per_byte=5.0,
    link_j_per_byte=7.0,
    static_w=11.0,
)


def test_each_cause_is_counted_by_itself() -> None:
    board = fpga(on_chip_bytes=0, energy=PRICES)
    asked = request([linear("a", 8, 4)], board)
    found = FpgaTable(asked, 2).stage(["a"], asked.cluster.devices[0], 0.0, Setting())
    executed = [Executed(found.layers[0], found.off_chip_bytes[0], (3, 3, 3))]
    energy = executed_energy(board, "fp32", executed, optimizer_bytes=10.0)
    assert energy.macs_j == 3 * 3 * (8 * 4 * 2)
    tiles = 2 * (2 * 1)  # samples; 8 × 4 is two tiles in the forward, as many either way round
    assert energy.on_chip_j == 3.0 * 3 * 3 * tiles * (4 + 2 * 4) * 4
    weights, stash = 4 * 8 * 4, 2 * 4 * 4
    assert energy.off_chip_j == 5.0 * (3 * (4 * weights + 2 * stash) + 10)
    whole = total([energy, link_energy(board, 4.0), static_energy(board, 2.0)])
    assert (whole.links_j, whole.static_j) == (28.0, 22.0)
    assert whole.total_j == pytest.approx(energy.total_j + 50.0)
