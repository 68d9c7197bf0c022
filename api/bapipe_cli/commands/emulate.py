"""`bapipe emulate`: a plan on a cluster of FPGAs that need not exist, with or without training a network on it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Plan
from bapipe.quantities import bytes_text, joules_text, percent_text, seconds_text
from bapipe.wording import arrangement_text
from bapipe_cli import options
from bapipe_cli.backend import backend
from bapipe_cli.commands.run import DataOption, LossOption, OptimizerOption, PlanArgument, RateOption, SeedOption
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import read_feasible_plan
from bapipe_cli.output import check_folder, console, table, write_file
from bapipe_cli.render import print_notes

if TYPE_CHECKING:
    from bapipe.emulation import EmulationOptions, EmulationReport
    from bapipe.emulation.emulate import Emulated

ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="MODULE:FUNCTION", help="Train this network, in 64 bits on the CPU."),
]
StepsOption = Annotated[int, typer.Option("--steps", min=1, help="Mini-batches to train on.")]
FormatOption = Annotated[
    str | None,
    typer.Option("--number-format", help="Round weights and activations: bf16, fp16, or fixed point such as Q7.8."),
]
SlowOption = Annotated[
    list[str] | None, typer.Option("--slow", metavar="DEVICE=SPEED", help="A board at a part of its speed: d1=0.5.")
]
LossyOption = Annotated[
    list[str] | None, typer.Option("--lossy", metavar="DEVICE,DEVICE=LOSS", help="A link that loses chunks: d0,d1=0.1.")
]
DeadOption = Annotated[
    list[str] | None, typer.Option("--dead", metavar="DEVICE=SECONDS", help="A board that stops for ever: d2=0.01.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", help="Write the step to this file, for Perfetto or chrome://tracing.", show_default=False),
]


def emulate(
    plan: PlanArgument,
    model: ModelOption = None,
    steps: StepsOption = 1,
    data: DataOption = None,
    loss: LossOption = None,
    optimizer: OptimizerOption = "sgd",
    learning_rate: RateOption = 1e-3,
    number_format: FormatOption = None,
    slow: SlowOption = None,
    lossy: LossyOption = None,
    dead: DeadOption = None,
    seed: SeedOption = 0,
    trace: TraceOption = None,
    as_json: options.JsonOption = False,
    server: options.ServerOption = None,
) -> None:
    """Emulate a plan on its FPGAs: step time, energy, traffic, FIFOs and peaks, board by board.

    With --model the network is trained for so many steps, with real arithmetic, in the order in which the boards
    finish. The step is that of the plan; faults can be added to its boards and links.
    """
    check_folder(trace, "--trace")
    place = backend(server)
    if model is None and number_format is not None:
        raise typer.BadParameter("numbers are only computed with --model", param_hint="--number-format")
    if model is not None and server is not None:
        raise typer.BadParameter("a network is trained where its code is: here, without --server", param_hint="--model")
    with user_faults(as_json=as_json):
        subject = read_feasible_plan(plan, "emulate")
        faults = _faults(slow, lossy, dead, seed)
        losses: tuple[float, ...] = ()
        if model is None:
            report, events = place.emulate(subject, faults, trace=trace is not None)
        else:
            from bapipe.trace import chrome_trace

            spec = {"model": model, "data": data, "loss": loss, "optimizer": optimizer, "learning_rate": learning_rate}
            losses, emulated = _trained(subject, faults, steps, number_format, spec | {"seed": seed})
            report, events = emulated.report, chrome_trace(subject, emulated.simulation)
        if trace is not None and events is not None:
            write_file(trace, events)
        if as_json:
            document = {"losses": losses, **report.model_dump(mode="json")}
            typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        else:
            _print(subject, report, losses, faulty=bool(slow or lossy or dead))


def _trained(
    plan: Plan, faults: EmulationOptions, steps: int, number_format: str | None, given: dict[str, Any]
) -> tuple[tuple[float, ...], Emulated]:
    sys.path.insert(0, os.getcwd())
    from bapipe.faults import parse
    from bapipe_executor import run_parts
    from bapipe_executor.fpga import parse_format
    from bapipe_executor.fpga.from_factories import train
    from bapipe_executor.networks import default_data
    from bapipe_executor.run_spec import RunSpec

    given["data"] = given["data"] or default_data(given["model"])
    given["loss"] = given["loss"] or run_parts.default_loss(given["model"])
    spec = parse(RunSpec, given | {"steps": steps})
    run = train(plan, spec, rounding=parse_format(number_format) if number_format else None, options=faults)
    return run.losses, run.emulated


def _faults(slow: list[str] | None, lossy: list[str] | None, dead: list[str] | None, seed: int) -> EmulationOptions:
    from bapipe.emulation import EmulationOptions
    from bapipe.faults import parse

    links = [_pair(text, "--lossy") for text in lossy or ()]
    return parse(
        EmulationOptions,
        {
            "slow_boards": [dict(zip(("device", "speed"), _pair(text, "--slow"), strict=True)) for text in slow or ()],
            "lossy_links": [{"devices": ends.split(","), "loss": loss} for ends, loss in links],
            "dead_boards": [dict(zip(("device", "at_s"), _pair(text, "--dead"), strict=True)) for text in dead or ()],
            "seed": seed,
        },
    )


def _pair(text: str, option: str) -> tuple[str, float]:
    name, equals, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        equals = ""
    if not equals or not name:
        detail = f"{option} {text!r}: write what, an equals sign and a number, such as d1=0.5"
        raise InvalidInputError([Fault("wrong_option", detail)])
    return name, number


def _print(plan: Plan, report: EmulationReport, losses: tuple[float, ...], *, faulty: bool) -> None:
    out = console()
    arrangement = arrangement_text(plan.schedule, plan.stages) if plan.schedule is not None else plan.status
    out.print(f"{arrangement}; {_step_text(report)}", style="bold")
    causes = {name.removesuffix("_j").replace("_", " "): value for name, value in report.energy.model_dump().items()}
    total = causes.pop("total")
    shares = ", ".join(f"{name} {percent_text(value / total)}" for name, value in causes.items() if value)
    out.print(f"energy {joules_text(total)} a step: {shares}" if total else "energy: none")
    for number, loss in enumerate(losses, start=1):
        out.print(f"step {number}: loss {loss:.6g}")
    if plan.baselines and report.step_time_s and not faulty:
        out.print(f"beside what is done without a planner: {_beside(plan, report.step_time_s)}")
    out.print()
    out.print(board_table(report))
    if report.links:
        out.print()
        out.print(link_table(report))
    print_notes("Warnings", report.warnings, out)


def _beside(plan: Plan, step_s: float) -> str:
    """How many times faster the emulated step is than each baseline on the same boards."""
    known = [(each.name, each.step_time_s) for each in plan.baselines if each.step_time_s is not None]
    return ", ".join(f"{name} {seconds / step_s:.2f}×" for name, seconds in known) or "none of it fits"


def _step_text(report: EmulationReport) -> str:
    if report.loss is None:
        predicted = report.predicted_step_time_s
        beside = f", {seconds_text(predicted)} predicted" if predicted is not None else ""
        return f"step {seconds_text(report.step_time_s or 0.0)}{beside}, {report.samples_per_s:.4g} samples/s"
    loss = report.loss
    done = f"{loss.forwards[0]} of {loss.forwards[1]} forwards, {loss.backwards[0]} of {loss.backwards[1]} backwards"
    boards = ", ".join(loss.boards)
    return f"the step is lost with {boards}: {seconds_text(loss.lost_s)}, {done}"


def board_table(report: EmulationReport) -> Table:
    """A row a board."""
    made = table("Boards", ["board", "busy", "used", "stalled", "on chip", "off chip", "traffic", "energy"])
    for board in report.boards:
        made.add_row(
            board.device,
            seconds_text(board.busy_s),
            percent_text(board.utilisation),
            seconds_text(board.stalled_s),
            f"{bytes_text(board.on_chip_peak_bytes)} of {bytes_text(board.on_chip_capacity_bytes)}",
            bytes_text(board.off_chip_peak_bytes),
            bytes_text(board.off_chip_traffic_bytes),
            joules_text(board.energy.total_j),
        )
    return made


def link_table(report: EmulationReport) -> Table:
    """A row a direction of a link."""
    made = table("Links", ["from", "to", "busy", "bytes", "sent again", "FIFO"], text_columns=2)
    for link in report.links:
        depth = "without limit" if link.fifo_depth is None else f"of {link.fifo_depth} chunks"
        fifo = f"{link.fifo_peak} {depth}" if link.fifo_peak else "not used"
        made.add_row(
            link.source,
            link.target,
            seconds_text(link.busy_s),
            bytes_text(link.sent_bytes),
            bytes_text(link.resent_bytes),
            fifo,
        )
    return made
