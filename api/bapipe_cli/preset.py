"""One preset in full: its figures, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from bapipe.nearest import nearest
from bapipe.problem import DeviceKind, Link, ModelProfile
from bapipe.quantities import bytes_text, rate_text, seconds_text
from bapipe_cli.backend import Backend
from bapipe_cli.output import console, table
from bapipe_cli.render import print_notes

UNITS: dict[str, Callable[[float], str]] = {
    "_bytes": bytes_text,
    "_per_s": rate_text,
    "_s": seconds_text,
    "_hz": lambda hertz: f"{hertz / 1e6:g} MHz",
}
"""How a figure is read, by the end of its name; the first that fits."""


def show_preset(name: str, place: Backend, *, as_json: bool) -> None:
    """Prints the preset `name` as `place` has it: its figures and their sources, or with `as_json` the document itself.

    Raises:
        typer.BadParameter: there is none.
    """
    preset = _find(name, place)
    if as_json:
        typer.echo(preset.model_dump_json(indent=2))
    else:
        _print(name, preset, console())


def _find(name: str, place: Backend) -> BaseModel:
    readers = place.preset_readers()
    if name not in readers:
        near = nearest(name, readers)
        hint = f"did you mean {near!r}?" if near else "`bapipe presets` lists them"
        raise typer.BadParameter(f"there is no preset {name!r}; {hint}", param_hint="NAME")
    return readers[name]()


def _print(name: str, preset: BaseModel, out: Console) -> None:
    if isinstance(preset, DeviceKind):
        out.print(_figures(name, preset.model_dump(exclude={"name", "sources"})))
        print_notes("Sources", [f"{figure}: {source}" for figure, source in preset.sources.items()], out)
    elif isinstance(preset, Link):
        out.print(_figures(name, preset.model_dump(exclude={"source"})))
        print_notes("Source", [preset.source], out)
    elif isinstance(preset, ModelProfile):
        out.print(_layers(preset))
        print_notes("Source", [preset.source], out)
        print_notes("Warnings", preset.warnings, out)
    else:
        out.print_json(preset.model_dump_json(exclude_defaults=True))


def _figures(name: str, figures: dict[str, Any]) -> Table:
    made = table(name, ["figure", "value"], text_columns=2)
    for figure, value in _rows(figures):
        made.add_row(figure, _value_text(figure, value))
    return made


def _rows(figures: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """What is known, by dotted name; a table of numbers is one row."""
    for figure, value in figures.items():
        if isinstance(value, dict) and not all(isinstance(each, int | float) for each in value.values()):
            yield from _rows(value, f"{before}{figure}.")
        elif value is not None and value != {}:
            yield f"{before}{figure}", value


def _value_text(figure: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each:g}" for key, each in value.items())
    read = next((text for end, text in UNITS.items() if figure.endswith(end)), str)
    return read(value)


def _layers(profile: ModelProfile) -> Table:
    made = table(f"{profile.name}, by layer", ["layer", "kind", "parameters", "output a sample"], text_columns=2)
    for layer in profile.layers:
        made.add_row(layer.id, layer.kind, bytes_text(layer.parameter_bytes), bytes_text(layer.output_bytes_per_sample))
    return made
