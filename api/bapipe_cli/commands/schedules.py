"""`bapipe schedules`: the schedules side by side, on a pipeline of equal stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bapipe.quantities import bytes_text, percent_text
from bapipe_cli import options
from bapipe_cli.guard import user_faults
from bapipe_cli.output import check_folder, console, table, write_file

if TYPE_CHECKING:
    from bapipe.catalogue import Row, Setting

LONGEST_S = 1e6

StagesOption = Annotated[int, typer.Option("--stages", min=1, max=32, help="Devices, and equal stages.")]
CountOption = Annotated[int, typer.Option("--microbatches", min=1, max=256, help="Micro-batches of a step.")]
ForwardOption = Annotated[
    float, typer.Option("--forward", min=1e-6, max=LONGEST_S, help="Seconds of a micro-batch's forward on a stage.")
]
BackwardOption = Annotated[
    float, typer.Option("--backward", min=1e-6, max=LONGEST_S, help="Seconds of a micro-batch's backward on a stage.")
]
TransferOption = Annotated[
    float, typer.Option("--transfer", min=0.0, max=LONGEST_S, help="Seconds of a transfer between two stages.")
]
ChunksOption = Annotated[
    int, typer.Option("--chunks", min=1, max=64, help="In how many chunks a streaming link passes a tensor on.")
]
PlanOption = Annotated[
    str | None,
    typer.Option("--plan", metavar="NAME", help="Print the plan of this schedule as JSON.", show_default=False),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE.md",
        help="Write a page of Markdown here, and its images into a folder beside it.",
        show_default=False,
    ),
]


def schedules(
    stages: StagesOption = 4,
    microbatches: CountOption = 8,
    forward: ForwardOption = 1.0,
    backward: BackwardOption = 2.0,
    transfer: TransferOption = 0.5,
    chunks: ChunksOption = 4,
    plan: PlanOption = None,
    output: OutputOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Compare the schedules on equal stages: time, bubble, memory, use of links, and the closed form of the time."""
    check_folder(output, "--output")
    with user_faults(as_json=as_json):
        from bapipe.catalogue import Setting

        setting = Setting(stages, microbatches, forward, backward, transfer, chunks)
        if plan is not None:
            typer.echo(_plan(setting, plan))
        elif output is not None:
            _write(setting, output)
        else:
            _print(setting, as_json=as_json)


def _plan(setting: Setting, name: str) -> str:
    from bapipe.catalogue import ENTRIES

    entry = next((entry for entry in ENTRIES if entry.name == name), None)
    if entry is None:
        known = ", ".join(entry.name for entry in ENTRIES)
        raise typer.BadParameter(f"{name!r} is none of {known}", param_hint="--plan")
    if not entry.possible(setting):
        given = f"N = {setting.stages} (--stages), M = {setting.microbatches} (--microbatches)"
        raise typer.BadParameter(f"{name} can only be built where {entry.needs}; here {given}", param_hint="--plan")
    return entry.make(setting).model_dump_json(indent=2)


def _write(setting: Setting, output: Path) -> None:
    from bapipe.catalogue import page

    folder = output.with_suffix("")
    folder.mkdir(exist_ok=True)
    files = page(setting, folder.name, _command(setting, output.name))
    write_file(output, files.pop(""))
    for name, text in files.items():
        write_file(folder / name, text)


def _command(setting: Setting, output: str) -> str:
    """What writes the page again."""
    given = {"--stages": setting.stages, "--microbatches": setting.microbatches, "--forward": setting.forward_s}
    given |= {"--backward": setting.backward_s, "--transfer": setting.transfer_s, "--chunks": setting.chunks}
    return " ".join(["bapipe schedules", *(f"{name} {value:g}" for name, value in given.items()), f"-o {output}"])


def _print(setting: Setting, *, as_json: bool) -> None:
    from bapipe.catalogue import rows
    from bapipe.catalogue.page import counts, number

    found = rows(setting)
    if as_json:
        typer.echo(json.dumps([_figures(row) for row in found], indent=2, ensure_ascii=False))
        return
    title = (
        f"{setting.stages} equal stages, {setting.microbatches} micro-batches, transfers of {setting.transfer_s:g} s"
    )
    columns = ["schedule", "links", "in flight by device", "time", "by formula", "free transfers", "by formula"]
    made = table(title, [*columns, "bubble", "peak memory", "busiest link"], text_columns=3)
    for row in found:
        made.add_row(
            row.entry.name,
            row.entry.links,
            counts(row.in_flight),
            f"{number(row.seconds)} s",
            "" if row.formula_s is None else f"{number(row.formula_s)} s",
            f"{number(row.free_s)} s",
            "" if row.free_formula_s is None else f"{number(row.free_formula_s)} s",
            percent_text(row.bubble_fraction),
            bytes_text(max(row.peak_memory_bytes)),
            percent_text(row.link_share),
        )
    out = console()
    out.print(made)
    out.print("pipedream: the period, since it has no flush; --plan NAME prints a plan, -o FILE.md writes a page")


def _figures(row: Row) -> dict[str, Any]:
    entry = row.entry
    return {
        "schedule": entry.name,
        "links": entry.links,
        "formula": entry.formula,
        "conditions": entry.conditions,
        "time_s": row.seconds,
        "formula_s": row.formula_s,
        "free_transfers_s": row.free_s,
        "free_transfers_formula_s": row.free_formula_s,
        "bubble_fraction": row.bubble_fraction,
        "in_flight": row.in_flight,
        "peak_memory_bytes": row.peak_memory_bytes,
        "link_share": row.link_share,
    }
