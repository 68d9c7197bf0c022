"""`bapipe simulate`: what a plan costs, replayed event by event."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Plan
from bapipe.quantities import bytes_text, percent_text, rate_text, seconds_text
from bapipe.wording import arrangement_text
from bapipe_cli import options
from bapipe_cli.exits import ExitCode
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import read_feasible_plan
from bapipe_cli.output import check_folder, console, table, write_file
from bapipe_cli.render import prediction_text, print_faults

if TYPE_CHECKING:
    from bapipe.simulator import Simulation

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
) -> None:
    """Replay a plan: its timeline, and what it predicts of step time, devices, links and memory.

    What is wrong with the plan is listed. The exit code is 3 when it is not legal for its request, as when it needs
    more memory than there is; figures that it declares and that are not the simulated ones are only listed, and with
    --orders left out, since they are those of other orders.
    """
    check_folder(html, "--html")
    check_folder(trace, "--trace")
    with user_faults(as_json=as_json):
        subject = read_feasible_plan(plan, "simulate")
        from bapipe.check import check, is_claim
        from bapipe.timeline import html_timeline
        from bapipe.trace import chrome_trace

        subject, simulation = _replayed(subject, orders)
        faults = check(subject, simulation)
        if orders is not None:
            faults = [fault for fault in faults if not is_claim(fault)]
        if html is not None:
            write_file(html, html_timeline(subject, simulation))
        if trace is not None:
            write_file(trace, chrome_trace(subject, simulation))
        if as_json:
            typer.echo(json.dumps(_figures(subject, simulation, faults), indent=2, ensure_ascii=False))
        else:
            _print(subject, simulation, faults, width)
        if not all(is_claim(fault) for fault in faults):
            raise typer.Exit(ExitCode.INVALID_INPUT)


def _replayed(plan: Plan, orders: Path | None) -> tuple[Plan, Simulation]:
    """The plan and its simulation, in the orders of a file where one is given; faults then name its rows and cells."""
    from bapipe.formats.order_table import load_orders, with_orders
    from bapipe.simulator import simulate as replay

    if orders is None:
        return plan, replay(plan)
    given = load_orders(orders)
    plan = with_orders(plan, given)
    try:
        return plan, replay(plan)
    except InvalidInputError as error:
        raise InvalidInputError(given.located(error.faults)) from None


def _figures(plan: Plan, simulation: Simulation, faults: list[Fault]) -> dict[str, Any]:
    return simulation.prediction(plan.request).model_dump() | {"faults": [asdict(fault) for fault in faults]}


def _print(plan: Plan, simulation: Simulation, faults: list[Fault], width: int | None) -> None:
    from bapipe.simulator import drawn
    from bapipe.timeline import ascii_timeline

    out = console()
    prediction = simulation.prediction(plan.request)
    if plan.schedule is not None:
        out.print(f"{arrangement_text(plan.schedule, plan.stages)}; {prediction_text(plan, prediction)}", style="bold")
    if plan.schedule is not None and plan.schedule.weight_versions is not None:
        versions = ", ".join(map(str, plan.schedule.weight_versions))
        out.print(f"a lone step {seconds_text(prediction.step_time_s)}; {versions} weight versions by stage")
        out.print("drawn are several steps in a row, from the first on")
    else:
        out.print(f"period over repeated steps {seconds_text(prediction.period_s)}")
    out.print(f"\n{ascii_timeline(drawn(plan, simulation), width or out.width)}\n", soft_wrap=True)
    out.print(device_table(plan, simulation))
    if prediction.links:
        out.print()
        out.print(link_table(simulation))
    print_faults(faults, out)


def device_table(plan: Plan, simulation: Simulation) -> Table:
    """A row a device in use, with the memory that the request says it has."""
    from bapipe.cost.pipeline import memory_limit_bytes

    made = table("Devices", ["device", "busy", "idle in between", "peak memory", "limit", "used"])
    cluster = plan.request.cluster
    limits = {device.id: memory_limit_bytes(cluster, device) for device in cluster.devices}
    for device in simulation.prediction(plan.request).devices:
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


def link_table(simulation: Simulation) -> Table:
    """A row a direction of a link that carries something."""
    made = table("Links", ["from", "to", "busy", "share of the step", "bytes", "average"], text_columns=2)
    step_time_s = simulation.step_time_s
    for use in simulation.links:
        share = use.busy_s / step_time_s if step_time_s else 0.0
        average = rate_text(use.size_bytes / use.busy_s) if use.busy_s else "free"
        made.add_row(
            use.source, use.target, seconds_text(use.busy_s), percent_text(share), bytes_text(use.size_bytes), average
        )
    return made
