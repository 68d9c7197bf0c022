"""The kinds of jobs."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What a job finds: the name of the field that its answer is in and, with an s, of its address."""

    PLAN = "plan"
    SIMULATION = "simulation"
    EMULATION = "emulation"
