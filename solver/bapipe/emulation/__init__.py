"""A plan on a cluster of FPGAs, emulated: what becomes of a step with finite FIFOs, shared memory ports and faults.

Costs are those of `bapipe.cost.fpga`, which the planner uses too; the replay is the simulator's, part by part
(`bapipe.simulator.flow`). No arithmetic: the executor's emulator does that, in the order that is found here.
`bapipe.emulation.emulate` is the way in; what is here are the documents that it reads and writes.
"""

from __future__ import annotations

from bapipe.emulation.options import DeadBoard, EmulationOptions, EmulationRequest, LossyLink, SlowBoard
from bapipe.emulation.report import BoardReport, EmulationReport, EnergyReport, LinkReport, Loss

__all__ = [
    "BoardReport",
    "DeadBoard",
    "EmulationOptions",
    "EmulationReport",
    "EmulationRequest",
    "EnergyReport",
    "LinkReport",
    "Loss",
    "LossyLink",
    "SlowBoard",
]
