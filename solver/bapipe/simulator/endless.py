"""The period of a plan without a flush: micro-batches follow each other for ever, and the mini-batch is only a number.

A long run of micro-batches is replayed. Until the first stage starts its last forward, nothing knows that the run ends,
so what has ended by then is as in an endless one. Each micro-batch there has a start for every operation; when all
starts of a window of micro-batches are those of the window l micro-batches before, λ later, everything repeats from
there on: the period of M micro-batches is M·λ/l.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from bapipe.lowering import Operation
from bapipe.simulator.events import Replayed

Starts = list[tuple[float, ...]]
"""Of each micro-batch, the starts of its operations."""

RELATIVE_TOLERANCE = 1e-12

WINDOWS = 4
"""So many windows are replayed at first."""

REPLAYED_OPERATIONS = 2**17
"""The longest run that is replayed in search of the repetition."""


def period_without_flush_s(run: Callable[[int], Replayed], versions: tuple[int, ...], num_microbatches: int) -> float:
    """Seconds for `num_microbatches` in steady repetition; `run` replays so many steps in a row.

    A window is twice the micro-batches in flight, and two more. Where no repetition shows in the longest run: the mean
    over its second half.
    """
    window = 2 * max(versions) + 2
    count = WINDOWS * window
    while True:
        replayed = run(-(-count // num_microbatches))
        starts = _endless_starts(replayed)
        shift_s = _repeated_shift_s(starts, window)
        if shift_s is not None:
            return num_microbatches * shift_s
        if len(replayed.starts_s) > REPLAYED_OPERATIONS:
            half = len(starts) // 2
            return num_microbatches * (starts[-1][0] - starts[half][0]) / (len(starts) - 1 - half)
        count *= 2


def _endless_starts(replayed: Replayed) -> Starts:
    """The starts of the micro-batches that ended before the run began to end."""
    by_microbatch: dict[int, dict[Operation, float]] = defaultdict(dict)
    for operation, start_s in replayed.starts_s.items():
        by_microbatch[operation.microbatch][operation] = start_s
    last = len(by_microbatch) - 1
    turn_s = replayed.starts_s[Operation(0, "F", last)]
    starts = []
    for microbatch in range(last):
        done = by_microbatch[microbatch + 1]
        if max(done.values()) > turn_s:
            break
        mine = by_microbatch[microbatch]
        starts.append(tuple(mine[operation] for operation in sorted(mine)))
    return starts


def _repeated_shift_s(starts: Starts, window: int) -> float | None:
    """Seconds from micro-batch to micro-batch, where the last window repeats an earlier one; else None."""
    last = starts[-window:]
    for lag in range(1, len(starts) - window + 1):
        before = starts[-window - lag : -lag]
        growth = [
            now - then for one, other in zip(last, before, strict=True) for now, then in zip(one, other, strict=True)
        ]
        if max(growth) - min(growth) <= RELATIVE_TOLERANCE * starts[-1][0]:
            return growth[-1] / lag
    return None
