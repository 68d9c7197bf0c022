"""The timeline of one step as an SVG image, for documents: it renders wherever images do, on light and dark ground."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from bapipe.timeline.spans import KINDS, NONE, Span, engine_spans, reduction_spans

if TYPE_CHECKING:
    from bapipe.simulator import Simulation

WIDTH, ROW, GAP, AXIS = 960, 22, 4, 20
LETTER = 7.2
"""Width of a character of the labels, in the image's units."""

FILLS = {"F": "#3f7ccf", "B": "#2f8f69", "I": "#2f8f69", "W": "#b8518f", "R": "#3f7ccf", "A": "#c96a34", "O": "#6f7987"}
STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#1c2430}.in{fill:#fff;text-anchor:middle}.end{text-anchor:end}"
    ".ground{fill:#8a94a3;opacity:.18}@media(prefers-color-scheme:dark){text{fill:#e3e8ef}.in{fill:#fff}}"
)


def svg_timeline(simulation: Simulation, title: str, until_s: float | None = None) -> str:
    """A row a device, or an engine of one that has two, and a row a stage whose replicas reduce gradients.

    Numbers are micro-batches, odd ones paler. `until_s`: where the picture ends; None: with the step.
    """
    rows = [*engine_spans(simulation), *reduction_spans(simulation)]
    end_s = until_s or simulation.step_time_s
    margin = LETTER * (max(len(name) for name, _ in rows) + 1)
    height = len(rows) * (ROW + GAP) + AXIS
    scale = (WIDTH - margin - 1) / end_s if end_s else 0.0
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
    ]
    for number, (name, spans) in enumerate(rows):
        top = number * (ROW + GAP)
        lines.append(f'<text x="0" y="{top + 15}">{escape(name)}</text>')
        lines.append(f'<rect class="ground" x="{margin:g}" y="{top}" width="{end_s * scale:.2f}" height="{ROW}"/>')
        lines += [part for span in spans if span.start_s < end_s for part in _block(span, margin, scale, top, end_s)]
    lines.append(f'<text x="{margin:g}" y="{height - 5}">0</text>')
    lines.append(f'<text class="end" x="{WIDTH - 1}" y="{height - 5}">{end_s:g} s</text>')
    return "\n".join([*lines, "</svg>", ""])


def _block(span: Span, margin: float, scale: float, top: int, end_s: float) -> Iterator[str]:
    left, width = margin + span.start_s * scale, (min(span.end_s, end_s) - span.start_s) * scale
    if width <= 0:
        return
    paler = ' opacity=".72"' if span.microbatch != NONE and span.microbatch % 2 else ""
    yield (
        f'<rect x="{left:.2f}" y="{top}" width="{max(width - 0.5, 0.3):.2f}" height="{ROW}" '
        f'fill="{FILLS[span.kind]}"{paler}><title>{escape(_told(span))}</title></rect>'
    )
    label = "" if span.microbatch == NONE else str(span.microbatch)
    if label and len(label) * LETTER <= width:
        yield f'<text class="in" x="{left + width / 2:.2f}" y="{top + 15}">{label}</text>'


def _told(span: Span) -> str:
    words = KINDS[span.kind].name
    if span.microbatch != NONE:
        words += f" of micro-batch {span.microbatch}, stage {span.stage}"
    return f"{words}: {span.start_s:g} to {span.end_s:g} s"
