"""Processes that end with the one that started them, however that ended: nobody is left who trains for nobody."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

PARENT = "BAPIPE_PARENT"
"""In the environment of a process: the number of the one that it ends with."""

PR_SET_PDEATHSIG = 1


def with_parent(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child that is to end with this process."""
    return {**environment, PARENT: str(os.getpid())}


def end_with_parent(number: signal.Signals) -> None:
    """Has the system send this signal when the parent ends (on Linux). Only if it was started `with_parent`.

    The parent may be gone already; the system gives its children to another.
    """
    parent = os.environ.get(PARENT)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGKILL)
