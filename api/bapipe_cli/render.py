"""A plan as people read it: what was decided, how good that is, and what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bapipe.candidates import candidates
from bapipe.errors import Fault
from bapipe.plan import Baseline, Plan, Prediction, Stage
from bapipe.problem import ModelProfile
from bapipe.quantities import bytes_text, counted, factor_text, gap_text, percent_text, seconds_text
from bapipe.wording import arrangement_text
from bapipe_cli.listing import fault_lines
from bapipe_cli.output import table

LOADS = {
    "none": "load is compute alone: communication none",
    "overlap": "load is the larger of compute and transfers: communication overlap",
    "serial": "load is compute and transfers, one after the other: communication serial",
}
"""What a stage's share of the bottleneck is, by how communication counts."""


def print_plan(plan: Plan, out: Console) -> None:
    """Status, proof, stages, comparison, explanation and warnings, in this order."""
    out.print(headline(plan), style="bold")
    out.print(proof_line(plan))
    if plan.proof.scope_detail:
        out.print(f"scope: {plan.proof.scope_detail}")
    if plan.stages:
        out.print()
        out.print(stage_table(plan))
        if plan.request.objective == "bottleneck":
            out.print(LOADS[plan.request.communication])
    if plan.baselines:
        out.print()
        out.print(baseline_table(plan))
    print_notes("Why", plan.explanation, out)
    print_notes("Warnings", plan.warnings, out)


def headline(plan: Plan) -> str:
    """The answer in a line."""
    if plan.schedule is None or plan.prediction is None:
        return f"{plan.status}: no plan fits {plan.request.cluster.name}"
    figures = prediction_text(plan)
    if plan.request.objective == "bottleneck":
        figures = f"bottleneck {seconds_text(plan.prediction.bottleneck_s, digits=6)} a micro-batch; {figures}"
    return f"{plan.status}: {arrangement_text(plan.schedule, plan.stages)}; {figures}"


def prediction_text(plan: Plan, found: Prediction | None = None) -> str:
    """Step time or, without a flush, the period; throughput and bubble. `found`: those of a simulation."""
    prediction = found or plan.prediction
    assert prediction is not None
    rate = f"{prediction.samples_per_s:.4g} samples/s"
    if plan.schedule is not None and plan.schedule.weight_versions is not None:
        return f"{seconds_text(prediction.period_s)} a mini-batch in steady repetition without a flush, {rate}"
    bubble = percent_text(prediction.bubble_fraction)
    return f"{seconds_text(prediction.step_time_s)} a step, {rate}, bubble {bubble}"


def proof_line(plan: Plan) -> str:
    """Bound, gap, scope, solver and wall time; what is not known is said to be unknown."""
    proof = plan.proof
    scope = {"candidates": "the candidates", "all_schedules": "all schedules"}[proof.scope]
    if plan.status == "infeasible":
        found = _nothing_fits(len(candidates(plan.request)))
    elif proof.lower_bound_s is None:
        found = f"no bound is known, over {scope}"
    else:
        bound = seconds_text(proof.lower_bound_s, digits=6)
        found = f"no better than {bound} is possible, gap {gap_text(proof.gap)}, over {scope}"
    return f"proof: {found}; {proof.solver}, {proof.wall_s:.2f} s"


def _nothing_fits(count: int) -> str:
    if count < 2:
        return "the only candidate does not fit" if count else "there is no candidate"
    return f"none of the {count} candidates fits"


def stage_table(plan: Plan) -> Table:
    """A row a stage: where its layers are, and what a micro-batch costs there."""
    by_load = plan.request.objective == "bottleneck"
    columns = ["stage", "layers", "devices", "forward", "backward", "load" if by_load else "compute"]
    made = table(_stage_title(plan.stages), [*columns, "peak memory", "limit", "used"], text_columns=3)
    for stage in plan.stages:
        limit = stage.memory_limit_bytes
        made.add_row(
            str(stage.index),
            span_text(stage.layers),
            ", ".join(stage.devices),
            seconds_text(stage.forward_s),
            seconds_text(stage.backward_s),
            seconds_text(stage.load_s if by_load else stage.forward_s + stage.backward_s),
            bytes_text(stage.peak_memory_bytes),
            "none" if limit is None else bytes_text(limit),
            percent_text(stage.peak_memory_bytes / limit) if limit else "",
        )
    return made


def _stage_title(stages: Sequence[Stage]) -> str:
    if all(len(stage.devices) == 1 for stage in stages):
        return "Stages, times of one micro-batch"
    if len(stages) == 1:
        return "Every device has all layers; times of one micro-batch, memory of each device"
    return "Stages, times of one micro-batch on one of the stage's devices, memory of each"


def span_text(layers: Sequence[str]) -> str:
    """`conv1 … pool3 (7)`."""
    return layers[0] if len(layers) == 1 else f"{layers[0]} … {layers[-1]} ({len(layers)})"


def baseline_table(plan: Plan) -> Table:
    """The plan beside what would be done without a planner."""
    compared = any(baseline.speedup is not None for baseline in plan.baselines)
    columns = ["", "step time", *(["plan is faster by"] if compared else []), "note"]
    made = table("Comparison", columns)
    made.columns[-1].justify = "left"
    rows = [
        (baseline.name, step_time_text(baseline), speedup_text(baseline), baseline.note) for baseline in plan.baselines
    ]
    if plan.prediction is not None:
        rows.insert(0, ("this plan", seconds_text(plan.pace_s or 0.0), "", ""))
    for name, step_time, speedup, note in rows:
        made.add_row(name, step_time, *([speedup] if compared else []), note)
    return made


def step_time_text(baseline: Baseline, digits: int = 4) -> str:
    """The baseline's step time, or that it has none."""
    return "—" if baseline.step_time_s is None else seconds_text(baseline.step_time_s, digits)


def speedup_text(baseline: Baseline) -> str:
    """`1.31×`, `250×`; empty where there is nothing to compare with."""
    return "" if baseline.speedup is None else factor_text(baseline.speedup)


def profile_line(profile: ModelProfile) -> str:
    """`vgg16: 38 layers, 528 MiB of parameters`."""
    own = sum(layer.parameter_bytes for layer in profile.layers)
    size = own + sum(tied.parameter_bytes for tied in profile.tied_parameters)
    return f"{profile.name}: {counted(len(profile.layers), 'layer')}, {bytes_text(size)} of parameters"


def print_notes(title: str, notes: Sequence[str], out: Console) -> None:
    """A titled list of sentences; nothing when there are none."""
    if not notes:
        return
    out.print()
    out.print(title, style="bold")
    for note in notes:
        out.print(f"- {note}")


def print_faults(faults: Sequence[Fault], out: Console) -> None:
    """What is wrong with a plan; nothing when nothing is."""
    print_notes("Faults", fault_lines(faults), out)
