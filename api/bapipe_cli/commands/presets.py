"""`bapipe presets`: what can be named on the command line, with its figures and where they come from."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from bapipe.problem import DeviceKind, Link
from bapipe.quantities import bytes_text, rate_text, seconds_text
from bapipe_cli import options
from bapipe_cli.guard import user_faults
from bapipe_cli.output import console, table
from bapipe_cli.preset import show_preset
from bapipe_cli.render import print_notes

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="One of them, in full, with its sources.", show_default=False)
]
SourcesOption = Annotated[bool, typer.Option("--sources", help="Where every figure comes from, too.")]


def presets(name: NameArgument = None, sources: SourcesOption = False, as_json: options.JsonOption = False) -> None:
    """List the device kinds, links, example profiles and example clusters that come with BaPipe, or show one.

    Every figure has a source: --sources adds them to the list.
    """
    with user_faults(as_json=as_json):
        if name is not None:
            show_preset(name, as_json=as_json)
            return
        from bapipe.examples import example_names
        from bapipe.presets import CLUSTER_SPECS, device_kinds, links

        if as_json:
            found = {
                "device_kinds": {kind: found.model_dump() for kind, found in device_kinds().items()},
                "links": {link: found.model_dump() for link, found in links().items()},
                "examples": sorted(example_names()),
                "clusters": CLUSTER_SPECS,
            }
            typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
            return
        out = console()
        for listed in (device_table(device_kinds()), link_table(links()), profile_table(), cluster_table()):
            out.print(listed)
            out.print()
        out.print(
            "Links also: 10Gb is Ethernet of any such rate, 10GB/s any bandwidth. `bapipe presets NAME` shows one."
        )
        if sources:
            print_notes("Sources of devices", device_sources(device_kinds()), out)
            print_notes("Sources of links", [f"{name}: {link.source}" for name, link in links().items()], out)


def profile_table() -> Table:
    """A row an example profile."""
    from bapipe.examples import example_names, load_example

    made = table("Example profiles", ["profile", "layers", "parameters", "parameter bytes"])
    for name in sorted(example_names()):
        profile = load_example(name)
        size = sum(layer.parameter_bytes for layer in profile.layers)
        made.add_row(name, str(len(profile.layers)), f"{size // profile.bytes_per_parameter:,}", bytes_text(size))
    return made


def cluster_table() -> Table:
    """A row an example cluster, whose name stands for its spec."""
    from bapipe.presets import CLUSTER_SPECS

    made = table("Example clusters", ["cluster", "is"], text_columns=2)
    for name, spec in CLUSTER_SPECS.items():
        made.add_row(name, spec)
    return made


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
