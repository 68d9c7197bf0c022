"""`bapipe simulate`: what a plan costs, replayed event by event."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bapipe.errors import Fault, InvalidInputError, is_claim
from bapipe.plan import Plan, Prediction
from bapipe.quantities import bytes_text, percent_text, rate_text, seconds_text
from bapipe.wording import arrangement_text
from bapipe_cli import options
from bapipe_cli.backend import Backend, Form, Simulated, backend
from bapipe_cli.exits import ExitCode
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import read_feasible_plan
from bapipe_cli.output import check_folder, console, table, write_file
from bapipe_cli.render import prediction_text, print_faults

PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan file, as `bapipe plan -o` writes it; - for stdin.")
]
WidthOption = Annotated[int | None, typer.Option("--width", min=40, max=2000, help="Columns of the timeline.")]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", help="Write the timeline to this file, as a page of its own.", show_default=False),
]
TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", help="Write the step to this file, for Perfetto or chrome://tracing.", show_default=False),
]
OrdersOption = Annotated[
    Path | None,
    typer.Option(
        "--orders", help="Execute the orders in this file, CSV or JSON with a row a device.", show_default=False
    ),
]


def simulate(
    plan: PlanArgument,
    orders: OrdersOption = None,
    width: WidthOption = None,
    html: HtmlOption = None,
    trace: TraceOption = None,
    as_json: options.JsonOption = False,
    server: options.ServerOption = None,
) -> None:
    """Replay a plan: its timeline, and what it predicts of step time, devices, links and memory.

    What is wrong with the plan is listed. The exit code is 3 when it is not legal for its request, as when it needs
    more memory than there is; figures that it declares and that are not the simulated ones are only listed, and with
    --orders left out, since they are those of other orders.
    """
    check_folder(html, "--html")
    check_folder(trace, "--trace")
    place = backend(server)
    asked: tuple[tuple[Form, Path | None], ...] = (("html", html), ("trace", trace))
    files = {form: path for form, path in asked if path is not None}
    with user_faults(as_json=as_json):
        subject = read_feasible_plan(plan, "simulate")
        wanted: tuple[Form, ...] = (*files, *(() if as_json else ("picture",)))
        subject, found = _replayed(place, subject, orders, wanted)
        faults = [fault for fault in found.faults if orders is None or not is_claim(fault)]
        for form, path in files.items():
            write_file(path, found.files[form])
        if as_json:
            figures = found.prediction.model_dump() | {"faults": [asdict(fault) for fault in faults]}
            typer.echo(json.dumps(figures, indent=2, ensure_ascii=False))
        else:
            _print(subject, found, faults, width)
        if not all(is_claim(fault) for fault in faults):
            raise typer.Exit(ExitCode.INVALID_INPUT)


def _replayed(place: Backend, plan: Plan, orders: Path | None, wanted: Collection[Form]) -> tuple[Plan, Simulated]:
    """The plan and its simulation, in the orders of a file where one is given; faults then name its rows and cells."""
    from bapipe.formats.order_table import load_orders, with_orders

    if orders is None:
        return plan, place.simulate(plan, wanted)
    given = load_orders(orders)
    plan = with_orders(plan, given)
    try:
        return plan, place.simulate(plan, wanted)
    except InvalidInputError as error:
        raise InvalidInputError(given.located(error.faults)) from None


def _print(plan: Plan, found: Simulated, faults: Sequence[Fault], width: int | None) -> None:
    from bapipe.timeline import ascii_timeline

    out = console()
    prediction = found.prediction
    if plan.schedule is not None:
        out.print(f"{arrangement_text(plan.schedule, plan.stages)}; {prediction_text(plan, prediction)}", style="bold")
    if plan.schedule is not None and plan.schedule.weight_versions is not None:
        versions = ", ".join(map(str, plan.schedule.weight_versions))
        out.print(f"a lone step {seconds_text(prediction.step_time_s)}; {versions} weight versions by stage")
        out.print("drawn are several steps in a row, from the first on")
    else:
        out.print(f"period over repeated steps {seconds_text(prediction.period_s)}")
    assert found.picture is not None
    out.print(f"\n{ascii_timeline(found.picture, width or out.width)}\n", soft_wrap=True)
    out.print(device_table(plan, prediction))
    if prediction.links:
        out.print()
        out.print(link_table(prediction))
    print_faults(faults, out)


def device_table(plan: Plan, prediction: Prediction) -> Table:
    """A row a device in use, with the memory that the request says it has."""
    from bapipe.cost.capacity import memory_limit_bytes

    made = table("Devices", ["device", "busy", "idle in between", "peak memory", "limit", "used"])
    cluster = plan.request.cluster
    limits = {device.id: memory_limit_bytes(cluster, device) for device in cluster.devices}
    for device in prediction.devices:
        limit = limits[device.device]
        made.add_row(
            device.device,
            seconds_text(device.busy_s),
            seconds_text(device.span_bubble_s),
            bytes_text(device.peak_memory_bytes),
            "none" if limit is None else bytes_text(limit),
            percent_text(device.peak_memory_bytes / limit) if limit else "",
        )
    return made


def link_table(prediction: Prediction) -> Table:
    """A row a direction of a link that carries something."""
    made = table("Links", ["from", "to", "busy", "share of the step", "bytes", "average"], text_columns=2)
    step_time_s = prediction.step_time_s
    for use in prediction.links:
        share = use.busy_s / step_time_s if step_time_s else 0.0
        average = rate_text(use.bytes / use.busy_s) if use.busy_s else "free"
        made.add_row(
            use.source, use.target, seconds_text(use.busy_s), percent_text(share), bytes_text(use.bytes), average
        )
    return made
