"""`bapipe presets`: what can be named on the command line, with its figures and where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from bapipe.examples import ExampleSummary
from bapipe.problem import DeviceKind, Link
from bapipe.quantities import bytes_text, rate_text, seconds_text
from bapipe_cli import options
from bapipe_cli.backend import Presets, backend
from bapipe_cli.guard import user_faults
from bapipe_cli.output import console, table
from bapipe_cli.preset import show_preset
from bapipe_cli.render import print_notes

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One of them, in full, with its sources.", show_default=False)
]
SourcesOption = Annotated[bool, typer.Option("--sources", help="Where every figure comes from, too.")]


def presets(
    name: NameArgument = None,
    sources: SourcesOption = False,
    as_json: options.JsonOption = False,
    server: options.ServerOption = None,
) -> None:
    """List the device kinds, links, example profiles and example clusters that come with BaPipe, or show one.

    Every figure has a source: --sources adds them to the list.
    """
    place = backend(server)
    with user_faults(as_json=as_json):
        if name is not None:
            show_preset(name, place, as_json=as_json)
        elif as_json:
            typer.echo(json.dumps(_document(place.presets()), indent=2, ensure_ascii=False))
        else:
            _print(place.presets(), sources=sources)


def _document(found: Presets) -> dict[str, Any]:
    return {
        "device_kinds": {name: kind.model_dump() for name, kind in found.device_kinds.items()},
        "links": {name: link.model_dump() for name, link in found.links.items()},
        "examples": sorted(found.profiles),
        "clusters": dict(found.clusters),
    }


def _print(found: Presets, *, sources: bool) -> None:
    out = console()
    tables = (device_table(found.device_kinds), link_table(found.links), profile_table(found.profiles))
    for listed in (*tables, cluster_table(found.clusters)):
        out.print(listed)
        out.print()
    out.print("Links also: 10Gb is Ethernet of any such rate, 10GB/s any bandwidth. `bapipe presets NAME` shows one.")
    if sources:
        print_notes("Sources of devices", device_sources(found.device_kinds), out)
        print_notes("Sources of links", [f"{name}: {link.source}" for name, link in found.links.items()], out)


def profile_table(profiles: Mapping[str, ExampleSummary]) -> Table:
    """A row an example profile."""
    made = table("Example profiles", ["profile", "layers", "parameters", "parameter bytes"])
    for name, profile in sorted(profiles.items()):
        made.add_row(name, str(profile.layers), f"{profile.parameters:,}", bytes_text(profile.parameter_bytes))
    return made


def cluster_table(specs: Mapping[str, str]) -> Table:
    """A row an example cluster, whose name stands for its spec."""
    made = table("Example clusters", ["cluster", "is"], text_columns=2)
    for name, spec in specs.items():
        made.add_row(name, spec)
    return made


def device_table(kinds: Mapping[str, DeviceKind]) -> Table:
    """A row a kind."""
    made = table("Device kinds", ["kind", "memory", "reserved", "memory bandwidth", "launch", "peak FLOP/s"])
    for name, kind in kinds.items():
        bandwidth = kind.memory_bandwidth_bytes_per_s
        peaks = ", ".join(f"{dtype} {flops / 1e12:g}T" for dtype, flops in kind.peak_flops.items())
        made.add_row(
            name,
            "unlimited" if kind.memory_bytes is None else bytes_text(kind.memory_bytes),
            bytes_text(kind.reserved_bytes),
            "" if bandwidth is None else rate_text(bandwidth),
            seconds_text(kind.launch_overhead_s),
            peaks,
        )
    return made


def link_table(found: Mapping[str, Link]) -> Table:
    """A row a link."""
    made = table("Links", ["link", "bandwidth", "latency", "mode"])
    for name, link in found.items():
        bandwidth = link.bandwidth_bytes_per_s
        made.add_row(
            name, "free" if bandwidth is None else rate_text(bandwidth), seconds_text(link.latency_s), link.mode
        )
    return made


def device_sources(kinds: Mapping[str, DeviceKind]) -> list[str]:
    """`V100-16G, memory_bytes: …`, in the order of the kinds."""
    return [f"{name}, {figure}: {source}" for name, kind in kinds.items() for figure, source in kind.sources.items()]
