"""`bapipe export`: a plan as a file that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bapipe_cli import options
from bapipe_cli.backend import backend
from bapipe_cli.guard import user_faults
from bapipe_cli.output import check_folder, write_file

PlanArgument = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", help="A plan file, - for stdin; with --server the id of a plan there.", show_default=False
    ),
]
FormatArgument = Annotated[
    Literal["json", "html", "csv", "trace"],
    typer.Argument(
        help="json: the plan file; html: the timeline, a page of its own; csv: the orders of operations, a row a "
        "device; trace: the step for Perfetto or chrome://tracing.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write to this file [default: to stdout].", show_default=False)
]


def export(
    plan: PlanArgument, form: FormatArgument, output: OutputOption = None, server: options.ServerOption = None
) -> None:
    """Write a plan in a format of other programs."""
    check_folder(output, "--output")
    place = backend(server)
    with user_faults():
        text = place.export(plan, form)
        if output is None:
            typer.echo(text, nl=False)
        else:
            write_file(output, text)
