"""`bapipe compare`: the plan beside what is done without a planner, over one or more clusters."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.table import Table

from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Baseline, Plan
from bapipe.problem import PlanRequest
from bapipe.quantities import gap_text, seconds_text
from bapipe_cli import options
from bapipe_cli.backend import Backend, backend
from bapipe_cli.exits import ExitCode
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import integers, names, plan_request
from bapipe_cli.output import console, table
from bapipe_cli.planning import exit_code
from bapipe_cli.render import print_notes, speedup_text, step_time_text

SEVERITY = (ExitCode.INTERRUPTED, ExitCode.INFEASIBLE, ExitCode.TIME_LIMIT, ExitCode.OK)


def compare(
    profile: options.ProfileArgument,
    clusters: options.ClusterArguments,
    batch: options.BatchOption,
    schedules: options.SchedulesOption = None,
    microbatch_sizes: options.SizesOption = None,
    microbatches: options.CountsOption = None,
    cuts: options.CutsOption = "any",
    max_stages: options.StagesOption = None,
    profile_batch: options.ProfileBatchOption = None,
    form: options.FormatOption = None,
    measured_on: options.MeasuredOnOption = None,
    dtype: options.DTypeOption = "fp32",
    optimizer_bytes: options.OptimizerOption = 8,
    time_limit: options.TimeLimitOption = 20.0,
    gap: options.GapOption = 0.0,
    as_json: options.JsonOption = False,
    server: options.ServerOption = None,
) -> None:
    """Compare the plan with data parallelism, and with equal layers under GPipe and 1F1B, on each CLUSTER.

    The time limit is of each cluster. The exit code is that of the worst one.
    """
    fields = {
        "batch_size": batch,
        "schedules": names(schedules),
        "microbatch_sizes": integers(microbatch_sizes, "--microbatch-sizes"),
        "microbatch_counts": integers(microbatches, "--microbatches"),
        "cuts": cuts,
        "max_stages": max_stages,
        "measured_on": measured_on,
        "dtype": dtype,
        "optimizer_bytes_per_parameter": optimizer_bytes,
        "time_limit_s": time_limit,
        "gap": gap,
    }
    place = backend(server)
    with user_faults(as_json=as_json):
        requests = _requests(profile, clusters, fields, form=form, profile_batch=profile_batch)
        answers, codes = _plans(place, clusters, requests)
        if as_json:
            rows = [_row(name, answer) for name, answer in zip(clusters, answers, strict=False)]
            typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        else:
            _print(clusters, answers)
        raise typer.Exit(min(codes, key=SEVERITY.index))


def _requests(profile: str, clusters: list[str], fields: dict[str, Any], **reading: Any) -> list[PlanRequest]:
    """A request a cluster; the faults of all of them are said at once, a fault of the profile only once."""
    requests, faults = [], dict[Fault, None]()
    for cluster in clusters:
        try:
            requests.append(plan_request(profile, cluster, fields, **reading))
        except InvalidInputError as error:
            faults.update(dict.fromkeys(error.faults))
    if faults:
        raise InvalidInputError(tuple(faults))
    return requests


def _plans(place: Backend, clusters: list[str], requests: list[PlanRequest]) -> tuple[list[Plan], list[ExitCode]]:
    """The plans, up to the one that Ctrl-C cut short."""
    answers, codes = [], []
    for name, request in zip(clusters, requests, strict=True):
        answer, interrupted = place.plan(request, name)
        answers.append(answer)
        codes.append(exit_code(answer, interrupted=interrupted))
        if interrupted:
            break
    return answers, codes


def _row(cluster: str, answer: Plan) -> dict[str, Any]:
    schedule, prediction = answer.schedule, answer.prediction
    return {
        "cluster": cluster,
        "status": answer.status,
        "schedule": schedule and schedule.name,
        "stages": len(answer.stages),
        "num_microbatches": schedule and schedule.num_microbatches,
        "microbatch_size": schedule and schedule.microbatch_size,
        "step_time_s": prediction and prediction.step_time_s,
        "samples_per_s": prediction and prediction.samples_per_s,
        "lower_bound_s": answer.proof.lower_bound_s,
        "gap": answer.proof.gap,
        "baselines": [baseline.model_dump() for baseline in answer.baselines],
    }


def _print(clusters: list[str], answers: list[Plan]) -> None:
    out = console()
    out.print(_table(clusters, answers))
    print_notes("Warnings", list(dict.fromkeys(note for answer in answers for note in answer.warnings)), out)


def _table(clusters: list[str], answers: list[Plan]) -> Table:
    profile, batch = answers[0].request.profile.name, answers[0].request.batch_size
    compared = list(dict.fromkeys(baseline.name for answer in answers for baseline in answer.baselines))
    title = f"{profile}, {batch} samples a step: step time, and how many times faster the plan is"
    columns = ["cluster", "plan", "stages", "micro-batches", "step time", "gap"]
    made = table(title, [*columns, *(name.replace("-", " ") for name in compared)], text_columns=2)
    made.columns[0].no_wrap = True
    for name, answer in zip(clusters, answers, strict=False):
        baselines = {baseline.name: baseline for baseline in answer.baselines}
        cells = [_baseline_text(baselines.get(baseline)) for baseline in compared]
        made.add_row(name, *_plan_cells(answer), gap_text(answer.proof.gap), *cells)
    return made


def _plan_cells(answer: Plan) -> tuple[str, str, str, str]:
    schedule, prediction = answer.schedule, answer.prediction
    if schedule is None or prediction is None:
        return answer.status, "", "", ""
    batches = f"{schedule.num_microbatches} of {schedule.microbatch_size}"
    return schedule.name, str(len(answer.stages)), batches, seconds_text(answer.pace_s or 0.0)


def _baseline_text(baseline: Baseline | None) -> str:
    if baseline is None:
        return ""
    return f"{step_time_text(baseline, digits=3)} {speedup_text(baseline)}".rstrip()
