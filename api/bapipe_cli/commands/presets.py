"""`bapipe presets`: what a cluster spec can name, with its figures and where they come from."""

from __future__ import annotations

import json

import typer
from rich.table import Table

from bapipe.problem import DeviceKind, Link
from bapipe.quantities import bytes_text, rate_text, seconds_text
from bapipe_cli import options
from bapipe_cli.guard import user_faults
from bapipe_cli.output import console, table
from bapipe_cli.render import print_notes


def presets(as_json: options.JsonOption = False) -> None:
    """List the device kinds, links and example profiles that come with BaPipe, and the source of every figure."""
    with user_faults(as_json=as_json):
        from bapipe.examples import example_names
        from bapipe.presets import device_kinds, links

        if as_json:
            found = {
                "device_kinds": {name: kind.model_dump() for name, kind in device_kinds().items()},
                "links": {name: link.model_dump() for name, link in links().items()},
                "examples": sorted(example_names()),
            }
            typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
            return
        out = console()
        out.print(device_table(device_kinds()))
        out.print()
        out.print(link_table(links()))
        print_notes("Example profiles", sorted(example_names()), out)
        print_notes("Sources of devices", device_sources(device_kinds()), out)
        print_notes("Sources of links", [f"{name}: {link.source}" for name, link in links().items()], out)


def device_table(kinds: dict[str, DeviceKind]) -> Table:
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


def link_table(found: dict[str, Link]) -> Table:
    """A row a link."""
    made = table("Links", ["link", "bandwidth", "latency", "mode"])
    for name, link in found.items():
        bandwidth = link.bandwidth_bytes_per_s
        made.add_row(
            name, "free" if bandwidth is None else rate_text(bandwidth), seconds_text(link.latency_s), link.mode
        )
    return made


def device_sources(kinds: dict[str, DeviceKind]) -> list[str]:
    """`V100-16G, memory_bytes: …`, in the order of the kinds."""
    return [f"{name}, {figure}: {source}" for name, kind in kinds.items() for figure, source in kind.sources.items()]
