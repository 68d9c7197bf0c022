"""The timeline of one step as a page that needs nothing but a browser: no network, no other file."""

from __future__ import annotations

import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bapipe.plan import Plan
from bapipe.quantities import bytes_text, counted, percent_text, seconds_text
from bapipe.timeline.spans import KINDS, Row, device_spans, link_spans, reduction_spans, stage_of_device

if TYPE_CHECKING:
    from bapipe.simulator import Simulation

COLOURS = {"F": "F", "B": "B", "A": "A", "O": "O", "XF": "X", "XB": "Y"}
"""The page's colour of each kind of span."""


def html_timeline(plan: Plan, simulation: Simulation) -> str:
    """The page for `plan`, a plan with a schedule, and its `simulation`."""
    rows = [*device_spans(simulation), *reduction_spans(simulation), *link_spans(simulation)]
    shown = {span.kind for _, spans in rows for span in spans}
    parts = {
        "title": escape(f"{plan.request.profile.name} on {plan.request.cluster.name}"),
        "subtitle": escape(_subtitle(plan)),
        "figures": _figures(plan, simulation),
        "legend": _legend(shown),
        "memory": _memory(plan, simulation),
        "data": _data(rows, simulation.step_time_s),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _page())


@cache
def _page() -> str:
    return files("bapipe.timeline").joinpath("page.html").read_text(encoding="utf-8")


def _subtitle(plan: Plan) -> str:
    schedule = plan.schedule
    if schedule is None:
        return plan.status
    batches = f"{counted(schedule.num_microbatches, 'micro-batch')} of {counted(schedule.microbatch_size, 'sample')}"
    return f"{schedule.name}, {counted(len(plan.stages), 'stage')}, {batches}; {plan.status}"


def _figures(plan: Plan, simulation: Simulation) -> str:
    bound, gap = plan.proof.lower_bound_s, plan.proof.gap
    figures = {
        "step time": seconds_text(simulation.step_time_s),
        "period": seconds_text(simulation.period_s),
        "samples per second": f"{simulation.prediction(plan.request).samples_per_s:.4g}",
        "bubble": percent_text(simulation.bubble_fraction),
        "proven lower bound": "unknown" if bound is None else seconds_text(bound),
        "gap": "unknown" if gap is None else percent_text(gap),
    }
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in figures.items())


def _legend(shown: set[str]) -> str:
    return "".join(
        f'<span><i style="background: var(--{COLOURS[code]})"></i>{escape(kind.name)}</span>'
        for code, kind in KINDS.items()
        if code in shown
    )


def _memory(plan: Plan, simulation: Simulation) -> str:
    stages = stage_of_device(simulation)
    limits = {device: stage.memory_limit_bytes for stage in plan.stages for device in stage.devices}
    return "".join(
        _memory_row(device, stages[device], peak, limits.get(device))
        for device, peak in zip(simulation.devices, simulation.peak_memory_bytes, strict=True)
    )


def _memory_row(device: str, stage: int, peak_bytes: float, limit_bytes: int | None) -> str:
    used = peak_bytes / limit_bytes if limit_bytes else 0.0
    over = ' class="over"' if limit_bytes is not None and peak_bytes > limit_bytes else ""
    return (
        f"<tr><td>{escape(device)}</td><td>{stage}</td>"
        f'<td><div class="bar"><b{over} style="width: {min(100.0, 100 * used):.1f}%"></b></div></td>'
        f'<td class="figure">{bytes_text(peak_bytes)}</td>'
        f'<td class="figure">{"none" if limit_bytes is None else bytes_text(limit_bytes)}</td>'
        f'<td class="figure">{"" if limit_bytes is None else percent_text(used)}</td></tr>'
    )


def _data(rows: list[Row], span_s: float) -> str:
    """The spans as columns. `<` is escaped, so that no name can end the script element."""
    codes = list(KINDS)
    spans = [(index, span) for index, (_, row) in enumerate(rows) for span in row]
    columns: dict[str, list[Any]] = {
        "row": [index for index, _ in spans],
        "kind": [codes.index(span.kind) for _, span in spans],
        "stage": [span.stage for _, span in spans],
        "microbatch": [span.microbatch for _, span in spans],
        "start": [span.start_s for _, span in spans],
        "end": [span.end_s for _, span in spans],
    }
    kinds = [{"name": kind.name, "colour": COLOURS[code]} for code, kind in KINDS.items()]
    data = {"span_s": span_s, "rows": [name for name, _ in rows], "kinds": kinds, "operations": columns}
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
