"""`bapipe run`: a network trained as a plan says, on this host or several."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bapipe.plan import Plan
from bapipe.quantities import counted, seconds_text
from bapipe.wording import arrangement_text
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import read_feasible_plan
from bapipe_cli.output import console, visible
from bapipe_cli.progress import step_progress
from bapipe_cli.run_report import print_report
from bapipe_cli.termination import ended_in_order

if TYPE_CHECKING:
    from bapipe_executor.launch import Hosts

FACTORY = "MODULE:FUNCTION"
PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan file, as `bapipe plan -o` writes it; - for stdin.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar=FACTORY, help="What makes the network.", show_default=False)
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar=FACTORY, help="What makes mini-batches of so many samples [default: MODEL_data]."),
]
LossOption = Annotated[
    str | None,
    typer.Option(
        "--loss",
        metavar=FACTORY,
        help="What makes the loss [default: loss beside the model, else masked cross entropy].",
    ),
]
StepsOption = Annotated[int, typer.Option("--steps", min=1, help="Mini-batches to train on.")]
OrdersOption = Annotated[
    Path | None,
    typer.Option(
        "--orders", help="Execute the orders in this file, CSV or JSON with a row a device.", show_default=False
    ),
]
DeviceOption = Annotated[
    Literal["cpu", "cuda"], typer.Option("--device", help="gloo between CPUs, NCCL between CUDA devices.")
]
OptimizerOption = Annotated[
    str, typer.Option("--optimizer", help=f"adam, adamw, sgd, or {FACTORY} of (name, parameter) pairs.")
]
RateOption = Annotated[float, typer.Option("--learning-rate", help="Of adam, adamw and sgd.")]
SchedulerOption = Annotated[
    str | None, typer.Option("--lr-scheduler", metavar=FACTORY, help="What makes a scheduler for an optimizer.")
]
ClipOption = Annotated[
    float | None, typer.Option("--clip", metavar="NORM", help="Scale gradients down to this norm, over all stages.")
]
AutocastOption = Annotated[Literal["bf16"] | None, typer.Option("--autocast", help="Mixed precision.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of all random numbers.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="S", help="Seconds without a step after which the run is ended.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="DIR", help="Save checkpoints in this folder, one at the end.", show_default=False
    ),
]
EveryOption = Annotated[
    int | None, typer.Option("--checkpoint-every", metavar="N", min=1, help="Also save after every N steps.")
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Go on from the newest checkpoint in DIR, if there is one; the plan may differ."),
]
RestartsOption = Annotated[
    int,
    typer.Option("--max-restarts", min=0, help="With --checkpoint: attempts more if a rank dies or hangs."),
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="DIR",
        help="Set what is measured beside the plan: a table, JSON, a trace.",
        show_default=False,
    ),
]
EmulateOption = Annotated[
    bool,
    typer.Option("--emulate-compute", help="No network: layers and links take the time that the plan says."),
]
HostsOption = Annotated[int, typer.Option("--hosts", min=1, help="Hosts on which this command is started.")]
HostRankOption = Annotated[int, typer.Option("--host-rank", min=0, help="Which of them this is, from 0.")]
RendezvousOption = Annotated[
    str | None, typer.Option("--rendezvous", metavar="HOST:PORT", help="Where several hosts meet: at host 0.")
]


def run(
    plan: PlanArgument,
    steps: StepsOption,
    model: ModelOption = None,
    data: DataOption = None,
    loss: LossOption = None,
    orders: OrdersOption = None,
    device: DeviceOption = "cpu",
    optimizer: OptimizerOption = "adam",
    learning_rate: RateOption = 1e-3,
    lr_scheduler: SchedulerOption = None,
    clip: ClipOption = None,
    autocast: AutocastOption = None,
    seed: SeedOption = 0,
    timeout: TimeoutOption = 300.0,
    checkpoint: CheckpointOption = None,
    checkpoint_every: EveryOption = None,
    resume: ResumeOption = False,
    max_restarts: RestartsOption = 3,
    report: ReportOption = None,
    emulate_compute: EmulateOption = False,
    hosts: HostsOption = 1,
    host_rank: HostRankOption = 0,
    rendezvous: RendezvousOption = None,
) -> None:
    """Train a torch network as a plan says: its stages on as many processes as the plan uses devices.

    The profile of the plan must be of this network: its layers are found by their names. Everything that keeps the plan
    from being run is said before any process is started.
    """
    if emulate_compute and hosts > 1:
        raise typer.BadParameter("a cluster is rehearsed on one machine: start it once", param_hint="--hosts")
    with user_faults(), ended_in_order():
        sys.path.insert(0, os.getcwd())
        subject = _subject(plan, orders)
        from bapipe.faults import parse
        from bapipe_executor.launch import check_run
        from bapipe_executor.run_spec import RunSpec
        from bapipe_executor.supervisor import supervise

        spec = parse(
            RunSpec,
            {
                **_factories(model, data, loss, emulate=emulate_compute),
                "steps": steps,
                "optimizer": optimizer,
                "learning_rate": learning_rate,
                "lr_scheduler": lr_scheduler,
                "max_gradient_norm": clip,
                "autocast": autocast,
                "device": device,
                "seed": seed,
                "timeout_s": timeout,
                "checkpoint": None if checkpoint is None else str(checkpoint.absolute()),
                "checkpoint_every": checkpoint_every,
                "resume": resume,
                "report": None if report is None else str(report.absolute()),
                "emulate_compute": emulate_compute,
            },
        )
        place = _hosts(hosts, host_rank, rendezvous)
        if report is not None:
            report.mkdir(parents=True, exist_ok=True)  # better now than when all steps are done
        with redirect_stdout(sys.stderr):  # what factories print is no answer of the command
            check_run(subject, spec, place)
        last: dict[str, Any] = {}
        title = f"{model or 'a rehearsal'} by {arrangement(subject)}"
        with step_progress(title, steps) as show:

            def on_event(event: dict[str, Any]) -> None:
                if event["event"] == "step":
                    last.update(event)
                    show(event["step"], event["loss"], event["samples_per_s"])
                elif event["event"] == "restart":
                    typer.echo(restart_text(event, max_restarts), err=True)
                elif event["event"] == "ready" and event["step"]:
                    typer.echo(going_on_text(event["step"], steps), err=True)

            supervise(subject, spec, on_event, max_restarts if checkpoint else 0, place)
        if last:
            took = f"the last step took {seconds_text(last['step_s'])}, {last['samples_per_s']:.4g} samples/s"
            console().print(f"{counted(last['step'], 'step')}; loss {last['loss']:.6g}; {took}")
        if report is not None and host_rank == 0 and last:
            from bapipe_executor.measured.report_files import write_report

            print_report(write_report(subject, report), console(), memory=not emulate_compute)


def _factories(model: str | None, data: str | None, loss: str | None, *, emulate: bool) -> dict[str, str]:
    """What makes network, batches and loss; of a rehearsal, which has its own, what says so."""
    if emulate:
        stand_in = "bapipe_executor.rehearsal"
        return {"model": f"{stand_in}:network", "data": f"{stand_in}:batches", "loss": f"{stand_in}:loss"}
    if model is None:
        raise typer.BadParameter("say which network is trained, or --emulate-compute", param_hint="--model")
    from bapipe_executor.networks import default_data
    from bapipe_executor.run_parts import default_loss

    return {"model": model, "data": data or default_data(model), "loss": loss or default_loss(model)}


def going_on_text(done: int, steps: int) -> str:
    """From where a resumed run goes on, or that it has nothing left to do."""
    if done < steps:
        return f"bapipe: going on after step {done}"
    return f"bapipe: nothing to do: the newest checkpoint has {done} steps already, and --steps asks for {steps}"


def restart_text(event: dict[str, Any], max_restarts: int) -> str:
    """Why an attempt failed, and what comes next."""
    start = f"from the checkpoint of step {event['step']}" if event["step"] else "from the start: no checkpoint yet"
    return visible(f"bapipe: {event['reason']}; restart {event['attempt']} of {max_restarts} {start}")


def arrangement(plan: Plan) -> str:
    """The plan in a few words."""
    return arrangement_text(plan.schedule, plan.stages) if plan.schedule is not None else plan.status


def _subject(path: str, orders: Path | None) -> Plan:
    """The plan, in the orders of a file where one is given."""
    plan = read_feasible_plan(path, "run")
    if orders is None:
        return plan
    from bapipe.formats.order_table import load_orders, with_orders

    return with_orders(plan, load_orders(orders))


def _hosts(count: int, rank: int, rendezvous: str | None) -> Hosts:
    from bapipe_executor.launch import Hosts

    if rank >= count:
        raise typer.BadParameter(f"{rank} of {count} hosts; count from 0", param_hint="--host-rank")
    if count > 1 and (rendezvous is None or not rendezvous.rpartition(":")[2].isdecimal()):
        raise typer.BadParameter("several hosts need host:port of host 0", param_hint="--rendezvous")
    return Hosts(count, rank, rendezvous)
