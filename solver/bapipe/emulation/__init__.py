"""A plan on a cluster of FPGAs, emulated: what becomes of a step with finite FIFOs, shared memory ports and faults.

Costs are those of `bapipe.cost.fpga`, which the planner uses too; the replay is the simulator's, part by part
(`bapipe.simulator.flow`). No arithmetic: the executor's emulator does that, in the order that is found here.
"""

from __future__ import annotations

from bapipe.emulation.emulate import Emulated, emulate
from bapipe.emulation.options import DeadBoard, EmulationOptions, LossyLink, SlowBoard
from bapipe.emulation.report import BoardReport, EmulationReport, EnergyReport, LinkReport, Loss

__all__ = [
    "BoardReport",
    "DeadBoard",
    "Emulated",
    "EmulationOptions",
    "EmulationReport",
    "EnergyReport",
    "LinkReport",
    "Loss",
    "LossyLink",
    "SlowBoard",
    "emulate",
]
