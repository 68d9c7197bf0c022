"""`bapipe profile`: what the layers of a network cost, measured here or computed for a device that is elsewhere."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from bapipe.quantities import bytes_text, seconds_text
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import integers
from bapipe_cli.options import JsonOption
from bapipe_cli.output import check_folder, console, table, write_file
from bapipe_cli.progress import counted_progress
from bapipe_cli.render import profile_line

if TYPE_CHECKING:
    from bapipe.problem import Layer, ModelProfile

FACTORY = "module:function"

ModelArgument = Annotated[
    str,
    typer.Argument(metavar="MODULE:FACTORY", help="What makes the network, such as bapipe_executor.models.gpt2:full."),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", metavar=FACTORY, help="What makes batches of so many samples [default: MODULE:FACTORY_data]."
    ),
]
LossOption = Annotated[
    str | None,
    typer.Option("--loss", metavar=FACTORY, help="What makes the loss [default: MODULE:loss, if there is one]."),
]
DeviceOption = Annotated[Literal["cpu", "cuda"], typer.Option("--device", help="Where it is measured.")]
AnalyticOption = Annotated[
    str | None,
    typer.Option("--analytic", metavar="KIND", help="Compute it for this device kind instead: see `bapipe presets`."),
]
KindOption = Annotated[
    str | None, typer.Option("--device-kind", metavar="NAME", help="What the measured device is called in a cluster.")
]
SizesOption = Annotated[str, typer.Option("--microbatch-sizes", metavar="1,2,4", help="Samples of a micro-batch.")]
RepeatsOption = Annotated[
    int, typer.Option("--repeats", min=1, help="Runs of each layer in each of three rounds; the least counts.")
]
AutocastOption = Annotated[
    Literal["bf16"] | None, typer.Option("--autocast", help="Mixed precision, as `bapipe run` has it.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="What the profile is called [default: by its factory].")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the profile to this file, as JSON.", show_default=False)
]


def profile(
    model: ModelArgument,
    data: DataOption = None,
    loss: LossOption = None,
    device: DeviceOption = "cpu",
    analytic: AnalyticOption = None,
    device_kind: KindOption = None,
    microbatch_sizes: SizesOption = "1,2,4",
    repeats: RepeatsOption = 10,
    autocast: AutocastOption = None,
    name: NameOption = None,
    output: OutputOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find out how long each layer of a torch network takes, forward and backward, and how many bytes it keeps.

    The backward is split into the gradient of a layer's input and that of its weights. With --analytic nothing is
    executed: FLOPs and bytes are counted, and a roofline of the device gives the time.
    """
    check_folder(output, "--output")
    sizes = _sizes(microbatch_sizes)
    with user_faults(as_json=json_output):
        sys.path.insert(0, os.getcwd())
        from bapipe_executor.profiling import from_factories

        subject = from_factories.Subject(model, data, loss, name, autocast)
        with counted_progress(f"profile of {model}") as report, redirect_stdout(sys.stderr):
            if analytic is not None:
                made = from_factories.compute(subject, kind=analytic, microbatch_sizes=sizes, report=report)
            else:
                made = from_factories.measure(
                    subject,
                    device=device,
                    device_kind=device_kind,
                    microbatch_sizes=sizes,
                    repeats=repeats,
                    report=report,
                )
        _show(made, output, as_json=json_output)


def _sizes(text: str) -> tuple[int, ...]:
    sizes = integers(text, "--microbatch-sizes") or ()
    if min(sizes) < 1:
        raise typer.BadParameter("a micro-batch has one sample or more", param_hint="--microbatch-sizes")
    return tuple(dict.fromkeys(sizes))


def _show(made: ModelProfile, output: Path | None, *, as_json: bool) -> None:
    from bapipe.formats import to_json

    if output is not None:
        write_file(output, to_json(made))
    if as_json:
        typer.echo(to_json(made), nl=False)
        return
    out = console()
    out.print(profile_line(made))
    out.print(made.source)
    out.print()
    out.print(_sizes_table(made))
    out.print()
    out.print(_kinds_table(made))
    if made.warnings:
        out.print()
        out.print("Warnings")
        for warning in made.warnings:
            out.print(f"- {warning}")


def _sizes_table(made: ModelProfile) -> Table:
    shown = table("All layers, one micro-batch", ["samples", "forward", "backward"], text_columns=0)
    for position, time in enumerate(made.layers[0].times):
        times = [layer.times[position] for layer in made.layers]
        forward_s, backward_s = sum(each.forward_s for each in times), sum(each.backward_s for each in times)
        shown.add_row(str(time.microbatch_size), seconds_text(forward_s), seconds_text(backward_s))
    return shown


def _kinds_table(made: ModelProfile) -> Table:
    """What the layers of each kind cost together, at the largest micro-batch; the costliest first."""
    kinds: dict[str, list[Layer]] = {}
    for layer in made.layers:
        kinds.setdefault(layer.kind.partition("(")[0], []).append(layer)
    size = made.layers[0].times[-1].microbatch_size
    columns = ["kind", "layers", "forward", "input gradient", "weight gradient", "parameters", "kept"]
    shown = table(f"By kind of layer, a micro-batch of {size}", columns)
    for kind, layers in sorted(kinds.items(), key=lambda item: sum(map(_seconds, item[1])), reverse=True):
        times = [layer.times[-1] for layer in layers]
        shown.add_row(
            kind,
            str(len(layers)),
            seconds_text(sum(time.forward_s for time in times)),
            seconds_text(sum(time.input_gradient_s or 0.0 for time in times)),
            seconds_text(sum(time.weight_gradient_s or 0.0 for time in times)),
            bytes_text(sum(layer.parameter_bytes for layer in layers)),
            bytes_text(sum((layer.stash_bytes_per_sample or 0.0) * size for layer in layers)),
        )
    return shown


def _seconds(layer: Layer) -> float:
    return layer.times[-1].forward_s + layer.times[-1].backward_s
