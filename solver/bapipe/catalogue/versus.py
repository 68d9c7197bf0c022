"""When the larger warm-up of 1F1B-SO pays, and what it costs in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bapipe.catalogue.entries import ENTRIES
from bapipe.catalogue.rows import Row, rows
from bapipe.catalogue.setting import Setting

COMPARED = tuple(entry for entry in ENTRIES if entry.name in ("1f1b", "1f1b-so"))
MOST_MICROBATCHES = 64


@dataclass(frozen=True)
class Versus:
    """1F1B and 1F1B-SO in one setting. `more_bytes`: what the latter needs more, of each device."""

    setting: Setting
    plain: Row
    eager: Row

    @property
    def speedup(self) -> float:
        """How many times faster 1F1B-SO is."""
        return self.plain.seconds / self.eager.seconds

    @property
    def more_bytes(self) -> tuple[float, ...]:
        """By device."""
        pairs = zip(self.eager.peak_memory_bytes, self.plain.peak_memory_bytes, strict=True)
        return tuple(eager - plain for eager, plain in pairs)

    @property
    def more_in_flight(self) -> tuple[float, ...]:
        """By device."""
        pairs = zip(self.eager.in_flight, self.plain.in_flight, strict=True)
        return tuple(eager - plain for eager, plain in pairs)


def versus(setting: Setting) -> Versus:
    """Both, simulated."""
    plain, eager = rows(setting, COMPARED)
    return Versus(setting, plain, eager)


def fewest_microbatches(setting: Setting) -> int | None:
    """The least number of micro-batches at which 1F1B-SO is faster; None: it is not up to `MOST_MICROBATCHES`."""
    counts = range(1, MOST_MICROBATCHES + 1)
    faster = (m for m in counts if versus(replace(setting, microbatches=m)).speedup > 1 + 1e-12)
    return next(faster, None)
