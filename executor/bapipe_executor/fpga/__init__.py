"""Plans on virtual FPGAs: real arithmetic on the CPU, in the order in which the emulated boards finish.

When things happen is worked out by `bapipe.emulation`; what comes out of them here.
"""

from __future__ import annotations

from bapipe_executor.fpga.number_format import NumberFormat, parse_format
from bapipe_executor.fpga.operators import operators_of, with_operators
from bapipe_executor.fpga.training import VirtualRun, train_on_boards

__all__ = ["NumberFormat", "VirtualRun", "operators_of", "parse_format", "train_on_boards", "with_operators"]
