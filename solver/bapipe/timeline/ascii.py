"""The timeline of one step in plain characters, for terminals, logs and bug reports."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from bapipe.quantities import seconds_text
from bapipe.timeline.picture import Picture
from bapipe.timeline.spans import KINDS, Span, engine_spans, reduction_spans

IDLE = "."
LEAST_WIDTH = 20


def ascii_timeline(picture: Picture, width: int = 100) -> str:
    """A line a device, or an engine of one that has two, and a line a stage whose replicas reduce gradients; `width`
    characters, time from left to right.

    A cell shows what runs at its middle: `F3--` is the forward of micro-batch 3, `B3==` its backward. Where the number
    does not fit, the letter stands alone; an operation narrower than a cell may not show at all.
    """
    rows = [*engine_spans(picture), *reduction_spans(picture)]
    span_s = max((span.end_s for _, spans in rows for span in spans), default=0.0)
    margin = max(len(name) for name, _ in rows) + 2
    cells = max(LEAST_WIDTH, width - margin - 1)
    lines = [f"{name:<{margin - 2}} |{draw_row(spans, span_s, cells)}|" for name, spans in rows]
    shown = {span.kind for _, spans in rows for span in spans}
    return "\n".join([*lines, " " * (margin - 1) + axis(span_s, cells), legend(shown)])


def draw_row(spans: Iterable[Span], span_s: float, cells: int) -> str:
    """The row of one device, `cells` characters for `span_s` seconds."""
    row = [IDLE] * cells
    for span in spans:
        first, last = cell_of(span.start_s, span_s, cells), cell_of(span.end_s, span_s, cells)
        row[first:last] = block(span, last - first)
    return "".join(row)


def cell_of(time_s: float, span_s: float, cells: int) -> int:
    """The first cell whose middle is at or after `time_s`."""
    return min(cells, ceil(time_s / span_s * cells - 0.5)) if span_s else 0


def block(span: Span, length: int) -> str:
    """An operation over `length` cells: its label where that fits, and the fill of its kind."""
    kind = KINDS[span.kind]
    label = f"{kind.letter}{span.microbatch}" if span.microbatch >= 0 else kind.letter
    if len(label) > length:
        label = kind.letter[:length]
    return label.ljust(length, kind.fill)


def axis(span_s: float, cells: int) -> str:
    """Start, middle and end of the time axis."""
    middle, end = seconds_text(span_s / 2), seconds_text(span_s)
    line = "0".ljust(cells // 2) + middle
    return line.ljust(cells + 1 - len(end)) + f" {end}" if len(line) + len(end) <= cells else f"0 to {end}"


def legend(shown: Iterable[str]) -> str:
    """What the letters mean, for the kinds that occur."""
    present = set(shown)
    words = [f"{kind.letter}{kind.fill} {kind.name}" for code, kind in KINDS.items() if code in present]
    return ", ".join([*words, f"{IDLE} idle", "numbers are micro-batches"])
