"""The files that a plan can be had as."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass

from bapipe.plan import Plan
from bapipe.simulator import simulate
from bapipe.timeline import html_timeline
from bapipe.trace import chrome_trace


@dataclass(frozen=True)
class Export:
    """A format: what it is, what a browser should call it, and how a plan that was found is written in it."""

    about: str
    media_type: str
    extension: str
    write: Callable[[Plan], str]


def _csv(plan: Plan) -> str:
    """A row a device, a cell an operation such as `2F0`, as `bapipe simulate --orders` and torch read it."""
    assert plan.schedule is not None
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(plan.schedule.orders)
    return text.getvalue()


def trace(plan: Plan) -> str:
    """The simulated step for Perfetto or chrome://tracing."""
    return chrome_trace(plan, simulate(plan))


EXPORTS = {
    "json": Export("the plan file", "application/json", "json", lambda plan: plan.model_dump_json(indent=2) + "\n"),
    "html": Export(
        "the timeline, a page of its own",
        "text/html; charset=utf-8",
        "html",
        lambda plan: html_timeline(plan, simulate(plan)),
    ),
    "csv": Export("the orders of operations, a row a device", "text/csv; charset=utf-8", "csv", _csv),
    "trace": Export("the step for Perfetto or chrome://tracing", "application/json", "trace.json", trace),
}
"""By name, as the address has it."""
