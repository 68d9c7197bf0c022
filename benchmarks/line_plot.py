"""Lines over a common axis, as an SVG image that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 60


@dataclass(frozen=True)
class Line:
    """A line through (x, y), with its label and colour."""

    label: str
    colour: str
    values: Sequence[tuple[float, float]]


def line_plot(title: str, x_label: str, y_label: str, lines: Sequence[Line], x_ticks: Sequence[float]) -> str:
    """The image; the y axis starts at 0 and ends a little above the largest value."""
    largest_x = max(x for line in lines for x, _ in line.values)
    largest_y = 1.05 * max(y for line in lines for _, y in line.values)

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / largest_x
        return round(across, 1), round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / largest_y, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="22" text-anchor="middle" font-size="15">{escape(title)}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 14}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text transform="translate(18 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>',
    ]
    left, bottom = place(0, 0)
    right, top = place(largest_x, largest_y)
    parts.append(f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#333"/>')
    for tick in x_ticks:
        across, _ = place(tick, 0)
        parts.append(f'<text x="{across}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>')
    for number in range(5):
        value = largest_y * number / 4
        _, up = place(0, value)
        parts.append(f'<text x="{left - 8}" y="{up + 4}" text-anchor="end">{value:.0f}</text>')
        parts.append(f'<path d="M{left} {up}H{right}" stroke="#ddd"/>')
    for number, line in enumerate(lines):
        way = " ".join(f"{x},{y}" for x, y in (place(*value) for value in line.values))
        parts.append(f'<polyline points="{way}" fill="none" stroke="{line.colour}" stroke-width="2"/>')
        height = TOP + 18 * number + 14
        parts.append(f'<path d="M{left + 14} {height - 4}h22" stroke="{line.colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 42}" y="{height}">{escape(line.label)}</text>')
    return "\n".join([*parts, "</svg>\n"])
