"""Where results go: stdout, as tables for people or as JSON for programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH_WITHOUT_TERMINAL = 160
LEAST_WIDTH = 40
MOST_DIGITS = 4


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to the guard, which ends the command as every other one that writes to a pipe ends."""
        raise BrokenPipeError

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string that is printed, in a table or alone, comes through here."""
        return super().render_str(visible(text), **options)


def visible(text: str, *, keep: str = "\n") -> str:
    """`text` with escapes for what a terminal would obey, or nobody would see: a name in a file may be anything."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else character.encode("unicode_escape").decode()
        for character in text
    )


def console(stream: TextIO | None = None) -> Console:
    """Prints names as they are (no markup), and does not squeeze tables into 80 columns when piped."""
    stream = stream or sys.stdout
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    width = _columns() or (None if stream.isatty() else WIDTH_WITHOUT_TERMINAL)
    return _Console(file=stream, markup=False, highlight=False, emoji=False, width=width, _environ=environment)


def _columns() -> int | None:
    """COLUMNS, brought to where a table can be read; None where it is no width at all, such as 0."""
    text = os.environ.get("COLUMNS", "")
    if not text.isdecimal() or len(text) > MOST_DIGITS or not int(text):
        return None
    return max(int(text), LEAST_WIDTH)


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
