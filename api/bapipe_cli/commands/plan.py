"""`bapipe plan`: the fastest pipeline for a profile on a cluster, with its proof."""

from __future__ import annotations

from pathlib import Path

import typer

from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_cli import options
from bapipe_cli.backend import backend
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import integers, names, plan_request
from bapipe_cli.output import check_folder, console, write_file
from bapipe_cli.planning import exit_code
from bapipe_cli.render import print_plan


def plan(
    profile: options.ProfileArgument,
    cluster: options.ClusterArgument,
    batch: options.BatchOption,
    task: options.TaskOption = "training",
    objective: options.ObjectiveOption = "step-time",
    communication: options.CommunicationOption = "overlap",
    cuts: options.CutsOption = "any",
    schedules: options.SchedulesOption = None,
    microbatch_sizes: options.SizesOption = None,
    microbatches: options.CountsOption = None,
    max_stages: options.StagesOption = None,
    solver: options.SolverOption = "auto",
    solver_log: options.SolverLogOption = False,
    profile_batch: options.ProfileBatchOption = None,
    form: options.FormatOption = None,
    measured_on: options.MeasuredOnOption = None,
    dtype: options.DTypeOption = "fp32",
    optimizer_bytes: options.OptimizerOption = 8,
    time_limit: options.TimeLimitOption = 60.0,
    gap: options.GapOption = 0.0,
    as_json: options.JsonOption = False,
    output: options.OutputOption = None,
    server: options.ServerOption = None,
    request_only: options.RequestOnlyOption = False,
) -> None:
    """Find the partition, schedule and micro-batch size that train PROFILE fastest on CLUSTER, and prove it."""
    fields = {
        "batch_size": batch,
        "task": task,
        "objective": objective,
        "communication": communication,
        "cuts": cuts,
        "schedules": names(schedules),
        "microbatch_sizes": integers(microbatch_sizes, "--microbatch-sizes"),
        "microbatch_counts": integers(microbatches, "--microbatches"),
        "max_stages": max_stages,
        "solver": solver,
        "measured_on": measured_on,
        "dtype": dtype,
        "optimizer_bytes_per_parameter": optimizer_bytes,
        "time_limit_s": time_limit,
        "gap": gap,
    }
    check_folder(output, "--output")
    place = backend(server)
    with user_faults(as_json=as_json):
        request = plan_request(profile, cluster, fields, form=form, profile_batch=profile_batch)
        if request_only:
            _write_request(request, output)
            return
        answer, interrupted = place.plan(request, "planning", solver_log=solver_log)
        _hand_over(answer, output, as_json=as_json)
        raise typer.Exit(exit_code(answer, interrupted=interrupted))


def _write_request(request: PlanRequest, output: Path | None) -> None:
    text = request.model_dump_json(indent=2, exclude_defaults=True) + "\n"
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_file(output, text)


def _hand_over(answer: Plan, output: Path | None, *, as_json: bool) -> None:
    text = answer.model_dump_json(indent=2) + "\n"
    if output is not None:
        write_file(output, text)
    if as_json:
        typer.echo(text, nl=False)
    else:
        print_plan(answer, console())
