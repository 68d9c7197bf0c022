"""Where results go: stdout, as tables for people or as JSON for programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console
from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 160


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the guard, which ends the command as every other one that writes to a pipe ends."""
        raise BrokenPipeError


def console(stream: TextIO | None = None) -> Console:
    """Prints names as they are (no markup), and does not squeeze tables into 80 columns when piped."""
    stream = stream or sys.stdout
    wide = not stream.isatty() and "COLUMNS" not in os.environ
    return _Console(
        file=stream, markup=False, highlight=False, emoji=False, width=WIDTH_WITHOUT_TERMINAL if wide else None
    )


def table(title: str, columns: list[str], *, text_columns: int = 1) -> Table:
    """A table whose first `text_columns` columns are text and whose others are figures, aligned right."""
    made = Table(
        title=title, title_justify="left", title_style="bold", header_style="bold", show_edge=False, pad_edge=False
    )
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < text_columns else "right", overflow="fold")
    return made


def check_folder(path: Path | None, option: str) -> None:
    """Says that a file to be written has no folder: before the search, not after it.

    Raises:
        typer.BadParameter: the folder is absent.
    """
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {str(path.parent)!r}", param_hint=option)


def write_file(path: Path, text: str) -> None:
    """Replaces `path` in one step: an interrupted run leaves the old file, not half of a new one.

    Raises:
        OSError: the folder is absent or not writable.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")  # a pipe or a device is written to, never replaced
        return
    path = path.resolve()
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
