"""The timeline of one step as a page that needs nothing but a browser: no network, no other file."""

from __future__ import annotations

import json
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bapipe.cost.capacity import memory_limit_bytes
from bapipe.errors import Fault
from bapipe.plan import Plan
from bapipe.quantities import bytes_text, counted, gap_text, percent_text, seconds_text
from bapipe.timeline.spans import KINDS, Row, engine_spans, link_spans, reduction_spans, stage_of_device
from bapipe.wording import arrangement_text

if TYPE_CHECKING:
    from bapipe.simulator import Simulation

COLOURS = {"F": "F", "B": "B", "I": "B", "W": "Y", "R": "F", "A": "A", "O": "O", "XF": "X", "XB": "Y"}
"""The page's colour of each kind of span."""

HATCHED = ("XF", "XB")
"""Kinds that a link does, not a device."""

MAX_SHOWN_FAULTS = 20


def html_timeline(plan: Plan, simulation: Simulation) -> str:
    """The page for `plan`, a plan with a schedule, and its `simulation`. Without a flush, several steps are drawn.

    Its status, bound and gap are shown as the plan declares them where `check` has nothing against the plan. Otherwise
    they are left out, and the faults listed.
    """
    from bapipe.check import check  # what replays needs numpy, and characters are drawn without it
    from bapipe.simulator import drawn

    picture = drawn(plan, simulation)
    rows = [*engine_spans(picture), *reduction_spans(picture), *link_spans(picture)]
    shown = {span.kind for _, spans in rows for span in spans}
    faults = check(plan, simulation)
    parts = {
        "title": escape(f"{plan.request.profile.name} on {plan.request.cluster.name}"),
        "subtitle": escape(_subtitle(plan, faults)),
        "faults": _faults(faults),
        "figures": _figures(plan, simulation, trusted=not faults),
        "heading": "One step" if simulation.flushed else "Steps in a row, from the first on: there is no flush",
        "legend": _legend(shown),
        "memory": _memory(plan, simulation),
        "data": _data(rows, picture.step_time_s),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _page())


@cache
def _page() -> str:
    return files("bapipe.timeline").joinpath("page.html").read_text(encoding="utf-8")


def _subtitle(plan: Plan, faults: list[Fault]) -> str:
    what = "" if plan.schedule is None else f"{arrangement_text(plan.schedule, plan.stages)}; "
    status = f"declared {plan.status}, with {counted(len(faults), 'fault')}" if faults else plan.status
    return what + status


def _faults(faults: list[Fault]) -> str:
    if not faults:
        return ""
    lines = [str(fault) for fault in faults[:MAX_SHOWN_FAULTS]]
    if len(faults) > MAX_SHOWN_FAULTS:
        lines.append(f"… and {len(faults) - MAX_SHOWN_FAULTS} more")
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<h2>Faults</h2><ul class="faults">{items}</ul>'


def _figures(plan: Plan, simulation: Simulation, *, trusted: bool) -> str:
    figures = {
        "step time": seconds_text(simulation.step_time_s),
        "period": seconds_text(simulation.period_s),
        "samples per second": f"{simulation.prediction(plan.request).samples_per_s:.4g}",
        "bubble": percent_text(simulation.bubble_fraction),
    }
    if trusted:
        bound = plan.proof.lower_bound_s
        figures["proven lower bound"] = "unknown" if bound is None else seconds_text(bound)
        figures["gap"] = gap_text(plan.proof.gap)
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in figures.items())


def _legend(shown: set[str]) -> str:
    kinds = "".join(
        f'<span><i class="{"hatched" if code in HATCHED else "plain"}" style="--fill: var(--{COLOURS[code]})"></i>'
        f"{escape(kind.name)}</span>"
        for code, kind in KINDS.items()
        if code in shown
    )
    return f"{kinds}<span>numbers are micro-batches; odd ones are paler</span>"


def _memory(plan: Plan, simulation: Simulation) -> str:
    stages = stage_of_device(simulation)
    cluster = plan.request.cluster
    limits = {device.id: memory_limit_bytes(cluster, device) for device in cluster.devices}
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
    kinds = [{"name": kind.name, "colour": COLOURS[code], "hatched": code in HATCHED} for code, kind in KINDS.items()]
    data = {"span_s": span_s, "rows": [name for name, _ in rows], "kinds": kinds, "operations": columns}
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
