"""`bapipe schema`: the JSON Schemas of the files that BaPipe reads and writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bapipe.schemas import DOCUMENTS, json_schema_text
from bapipe_cli.guard import user_faults
from bapipe_cli.output import write_file

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help=f"One of {', '.join(DOCUMENTS)} [default: all names are listed]")
]
FolderOption = Annotated[
    Path | None,
    typer.Option("--output-folder", "-o", help="Write every schema here, as NAME.json.", show_default=False),
]


def schema(name: NameArgument = None, output_folder: FolderOption = None) -> None:
    """Print the JSON Schema of a document, or write them all to a folder."""
    if name is not None and name not in DOCUMENTS:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(DOCUMENTS)}", param_hint="NAME")
    with user_faults():
        if output_folder is not None:
            _write(output_folder, [name] if name else list(DOCUMENTS))
        else:
            typer.echo(json_schema_text(name) if name else "\n".join(DOCUMENTS), nl=name is None)


def _write(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        write_file(folder / f"{name}.json", json_schema_text(name))
