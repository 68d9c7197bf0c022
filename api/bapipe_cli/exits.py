"""What the command's exit code says."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """0, 1 and 2 are every command's; the others tell a script what happened to its plan."""

    OK = 0
    DEFECT = 1
    USAGE = 2
    INVALID_INPUT = 3
    INFEASIBLE = 4
    TIME_LIMIT = 5
    SERVER = 6
    RUN_FAILED = 7
    INTERRUPTED = 130
    PIPE = 141
