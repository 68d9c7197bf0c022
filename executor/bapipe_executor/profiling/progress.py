"""How far a profile is."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[int, int, str], None]
"""Told how many layers are done, how many there are to do in all, and the name of the next one."""


class LayerCounter:
    """Counts the layers of several sweeps over one network."""

    def __init__(self, report: Report, total: int) -> None:
        self._report, self._total, self._done = report, total, 0

    def next(self, layer: str) -> None:
        """One more layer begins."""
        self._report(self._done, self._total, layer)
        self._done += 1
