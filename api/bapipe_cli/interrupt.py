"""Ctrl-C: the first asks the search to stop with what it has, the second stops the command."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from types import FrameType


class Interrupt:
    """A context in which the first Ctrl-C sets `requested` instead of raising KeyboardInterrupt; `doing` says what
    that brings about.
    """

    def __init__(self, doing: str = "stopping with the best plan so far") -> None:
        self.requested = False
        self._doing = doing

    def __enter__(self) -> Interrupt:
        self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        with suppress(OSError, RuntimeError):  # nobody reads it, or the signal came amid another line
            sys.stderr.write(f"\nbapipe: {self._doing}; Ctrl-C again to leave at once\n")
