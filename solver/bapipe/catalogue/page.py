"""The schedules as a page of Markdown with an image each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import fill

from bapipe.catalogue.rows import Row, rows
from bapipe.catalogue.setting import ACTIVATION_BYTES, PARAMETER_BYTES, STASH_BYTES, Setting
from bapipe.catalogue.versus import fewest_microbatches, versus
from bapipe.quantities import bytes_text, factor_text, percent_text
from bapipe.simulator import drawn, simulate
from bapipe.timeline import svg_timeline

COLUMNS = (
    *("schedule", "time", "by formula", "time, free transfers", "by formula", "bubble"),
    *("in flight", "peak memory", "busiest link"),
)


def page(setting: Setting, images: str, command: str) -> dict[str, str]:
    """The page's text under "", and its images by name; `images` is their folder, `command` what writes all this."""
    found = rows(setting)
    files = {f"{row.entry.name}.svg": picture(row, setting) for row in found}
    lines = [*_head(setting, command), *_table(found), "", *_versus(setting)]
    for row in found:
        lines += _section(row, images)
    return {"": "\n".join(lines) + "\n", **files}


def picture(row: Row, setting: Setting) -> str:
    """The timeline of a row, without a flush as long as the step of a plan that is flushed."""
    title = f"{row.entry.title}: {setting.stages} stages, {setting.microbatches} micro-batches"
    if row.entry.for_free_links:
        return svg_timeline(simulate(row.entry.make(replace(setting, transfer_s=0.0))), f"{title}, free transfers")
    flushed = row.simulation.flushed
    return svg_timeline(drawn(row.plan, row.simulation), title, None if flushed else row.simulation.step_time_s)


def number(value: float) -> str:
    """At most four digits, and no more than it has."""
    return f"{value:.4g}"


def counts(values: Sequence[float]) -> str:
    """One number where all are the same."""
    return number(values[0]) if len(set(values)) == 1 else ", ".join(map(number, values))


def _head(setting: Setting, command: str) -> Iterator[str]:
    yield "# The schedules side by side\n"
    yield _paragraph(
        f"`{command}` writes this page and its images; every figure is simulated.",
        "`bapipe schedules --plan NAME` prints the plan of a row, to be replayed, changed and checked:",
    )
    yield "\n    bapipe schedules --plan zb-h1 > plan.json\n    bapipe simulate plan.json\n"
    yield _paragraph(
        f"{setting.stages} equal stages, {setting.microbatches} micro-batches. On a stage a forward takes",
        f"{number(setting.forward_s)} s, a backward {number(setting.backward_s)} s, half of it each for the gradients",
        f"of inputs and of weights; a transfer takes {number(setting.transfer_s)} s, over streaming links in",
        f"g = {setting.chunks} chunks. A stage has {bytes_text(PARAMETER_BYTES)} of weights, keeps",
        f"{bytes_text(STASH_BYTES)} a micro-batch for its backward, and sends {bytes_text(ACTIVATION_BYTES)}.",
        "Optimizer steps and launches take no time.",
    )
    yield f"""
- *by formula*: what the closed form further down says, where its conditions hold; the simulated time is exactly that.
- *bubble*: the idle share of the devices; *busiest link*: the share of the time that one direction of a link is busy.
- *in flight*: by device, the most micro-batches that are kept for their backward; a micro-batch of a part of the
  device's layers counts as that part.
- PipeDream has no flush: its time is the period, that of {setting.microbatches} micro-batches in steady repetition.
- The orders of the last four rows are made for free transfers, which their images show; they are not reordered for
  slower ones.

In the images forwards are blue, backwards and input gradients green, weight gradients red, all-reduces orange; numbers
are micro-batches, of which odd ones are paler.
"""


def _paragraph(*parts: str) -> str:
    return fill(" ".join(parts), 120, break_long_words=False, break_on_hyphens=False)


def _table(found: Sequence[Row]) -> Iterator[str]:
    yield "| " + " | ".join(COLUMNS) + " |"
    yield "|---" * len(COLUMNS) + "|"
    for row in found:
        cells = (
            f"[{row.entry.title}](#{row.entry.name})",
            f"{number(row.seconds)} s",
            _seconds(row.formula_s),
            f"{number(row.free_s)} s",
            _seconds(row.free_formula_s),
            percent_text(row.bubble_fraction),
            counts(row.in_flight),
            bytes_text(max(row.peak_memory_bytes)),
            percent_text(row.link_share),
        )
        yield "| " + " | ".join(cells) + " |"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{number(value)} s"


def _section(row: Row, images: str) -> Iterator[str]:
    entry = row.entry
    yield f"""
## {entry.title}
<a id="{entry.name}"></a>

{entry.what}

![{entry.title}]({images}/{entry.name}.svg)

| | |
|---|---|
| {"Period" if entry.figure == "period" else "Step time"} | {entry.formula} |
| holds for | {entry.conditions} |
| In flight on stage i, from 1 | {entry.in_flight} |
| Links | {entry.links} |
| Link demand | {entry.demand} |"""
    if entry.needs:
        yield f"| Can be built where | {entry.needs} |"


def _versus(setting: Setting) -> Iterator[str]:
    """When 1F1B-SO beats 1F1B: twice the micro-batches, and transfers of up to a forward."""
    wide = replace(setting, microbatches=2 * setting.microbatches)
    compared = [versus(replace(wide, transfer_s=wide.forward_s * part / 4)) for part in range(5)]
    half = compared[2]
    fewest = fewest_microbatches(half.setting)
    yield f"""## When 1F1B-SO beats 1F1B

{wide.stages} equal stages, {wide.microbatches} micro-batches, overlapped links:

| transfer | 1F1B | 1F1B-SO | faster by |
|---|---|---|---|"""
    for each in compared:
        cells = (
            f"{number(each.setting.transfer_s)} s",
            f"{number(each.plain.seconds)} s",
            f"{number(each.eager.seconds)} s",
            factor_text(each.speedup),
        )
        yield "| " + " | ".join(cells) + " |"
    often = "never" if fewest is None else f"from {fewest} micro-batches on"
    yield "\n" + _paragraph(
        f"With a transfer of half a forward 1F1B-SO takes {number(half.eager.seconds)} s where 1F1B takes",
        f"{number(half.plain.seconds)} s: it is {factor_text(half.speedup)} as fast. For that it keeps",
        f"{counts(half.more_in_flight)} more micro-batches in flight on the devices in order (N-i on stage i from 1),",
        f"which is {', '.join(map(bytes_text, half.more_bytes))} more with their receive buffers: at most",
        f"{bytes_text(max(half.more_bytes))} beside {bytes_text(max(half.plain.peak_memory_bytes))}.",
        f"It is faster {often}: every N micro-batches 1F1B waits for 2(N-1)·C more, 1F1B-SO for 2(N-1)·C once a step.",
        "Over free links both take as long, and 1F1B needs less memory.",
    )
