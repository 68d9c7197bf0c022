"""`bapipe import`: a profile of any known format, in BaPipe's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bapipe.problem import ModelProfile
from bapipe_cli import options
from bapipe_cli.backend import ProfileText, backend
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import read_input
from bapipe_cli.output import check_folder, console, write_file
from bapipe_cli.render import print_notes, profile_line

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A profile file of any imported format; - for stdin.", show_default=False)
]
BatchOption = Annotated[
    int | None, typer.Option("--profile-batch", min=1, help="Samples that a PipeDream file's times are for.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="What the model is called [default: what the file says, else its name].")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the profile to this file, as JSON.", show_default=False)
]


def import_profile(
    file: FileArgument,
    form: options.FormatOption = None,
    profile_batch: BatchOption = None,
    name: NameOption = None,
    output: OutputOption = None,
    as_json: options.JsonOption = False,
    server: options.ServerOption = None,
) -> None:
    """Read a profile of any known format, check it, and write it in BaPipe's own.

    What the file did not say, and what was dropped or assumed, is listed as warnings.
    """
    check_folder(output, "--output")
    place = backend(server)
    with user_faults(as_json=as_json):
        source = ProfileText(read_input(file), name or _name(file), form, profile_batch)
        _show(place.import_profile(source), output, as_json=as_json)


def _name(file: str) -> str:
    from bapipe.formats import MAX_NAME_LENGTH

    return "profile" if file == "-" else Path(file).name.removesuffix(".txt").removesuffix(".graph")[:MAX_NAME_LENGTH]


def _show(made: ModelProfile, output: Path | None, *, as_json: bool) -> None:
    from bapipe.formats import to_json

    if output is not None:
        write_file(output, to_json(made))
    if as_json:
        typer.echo(to_json(made), nl=False)
        return
    out = console()
    out.print(profile_line(made), style="bold")
    if made.source:
        out.print(made.source)
    print_notes("Warnings", made.warnings, out)
