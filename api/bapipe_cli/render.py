"""A plan as people read it: what was decided, how good that is, and what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bapipe.plan import Baseline, Plan, Prediction, Proof, Schedule, Stage
from bapipe.quantities import bytes_text, counted, percent_text, seconds_text
from bapipe_cli.output import table


def print_plan(plan: Plan, out: Console) -> None:
    """Status, proof, stages, comparison, explanation and warnings, in this order."""
    out.print(headline(plan), style="bold")
    out.print(proof_line(plan.proof))
    if plan.proof.scope_detail:
        out.print(f"scope: {plan.proof.scope_detail}")
    if plan.stages:
        out.print()
        out.print(stage_table(plan.stages))
    if plan.baselines:
        out.print()
        out.print(baseline_table(plan))
    print_notes("Why", plan.explanation, out)
    print_notes("Warnings", plan.warnings, out)


def headline(plan: Plan) -> str:
    """The answer in a line."""
    if plan.schedule is None or plan.prediction is None:
        return f"{plan.status}: no plan fits {plan.request.cluster.name}"
    figures = prediction_text(plan.prediction)
    if plan.request.objective == "bottleneck":
        figures = f"bottleneck {seconds_text(plan.prediction.bottleneck_s, digits=6)} a micro-batch; {figures}"
    return f"{plan.status}: {schedule_text(plan.schedule, len(plan.stages))}; {figures}"


def schedule_text(schedule: Schedule, num_stages: int) -> str:
    """`1f1b over 4 stages, 16 micro-batches of 8 samples`."""
    batches = f"{counted(schedule.num_microbatches, 'micro-batch')} of {counted(schedule.microbatch_size, 'sample')}"
    return f"{schedule.name} over {counted(num_stages, 'stage')}, {batches}"


def prediction_text(prediction: Prediction) -> str:
    """Step time, throughput and bubble."""
    return (
        f"{seconds_text(prediction.step_time_s)} a step, {prediction.samples_per_s:.4g} samples/s, "
        f"bubble {percent_text(prediction.bubble_fraction)}"
    )


def proof_line(proof: Proof) -> str:
    """Bound, gap, scope, solver and wall time; what is not known is said to be unknown."""
    bound = "unknown" if proof.lower_bound_s is None else seconds_text(proof.lower_bound_s, digits=6)
    gap = "unknown" if proof.gap is None else percent_text(proof.gap)
    scope = {"candidates": "the candidates", "all_schedules": "all schedules"}[proof.scope]
    found = f"no better than {bound} is possible, gap {gap}, over {scope}"
    return f"proof: {found}; {proof.solver}, {proof.wall_s:.2f} s"


def stage_table(stages: Sequence[Stage]) -> Table:
    """A row a stage: where its layers are, and what a micro-batch costs there."""
    columns = ["stage", "layers", "devices", "forward", "backward", "load", "peak memory", "limit", "used"]
    made = table("Stages, times of one micro-batch", columns, text_columns=3)
    for stage in stages:
        limit = stage.memory_limit_bytes
        made.add_row(
            str(stage.index),
            span_text(stage.layers),
            ", ".join(stage.devices),
            seconds_text(stage.forward_s),
            seconds_text(stage.backward_s),
            seconds_text(stage.load_s),
            bytes_text(stage.peak_memory_bytes),
            "none" if limit is None else bytes_text(limit),
            percent_text(stage.peak_memory_bytes / limit) if limit else "",
        )
    return made


def span_text(layers: Sequence[str]) -> str:
    """`conv1 … pool3 (7)`."""
    return layers[0] if len(layers) == 1 else f"{layers[0]} … {layers[-1]} ({len(layers)})"


def baseline_table(plan: Plan) -> Table:
    """The plan beside what would be done without a planner."""
    made = table("Comparison", ["", "step time", "plan is faster by", "note"])
    made.columns[3].justify = "left"
    if plan.prediction is not None:
        made.add_row("this plan", seconds_text(plan.prediction.step_time_s), "", "")
    for baseline in plan.baselines:
        made.add_row(baseline.name, step_time_text(baseline), speedup_text(baseline), baseline.note)
    return made


def step_time_text(baseline: Baseline, digits: int = 4) -> str:
    """The baseline's step time, or that it has none."""
    return "does not fit" if baseline.step_time_s is None else seconds_text(baseline.step_time_s, digits)


def speedup_text(baseline: Baseline) -> str:
    """`1.31×`; empty where there is nothing to compare with."""
    return "" if baseline.speedup is None else f"{baseline.speedup:.2f}×"


def print_notes(title: str, notes: Sequence[str], out: Console) -> None:
    """A titled list of sentences; nothing when there are none."""
    if not notes:
        return
    out.print()
    out.print(title, style="bold")
    for note in notes:
        out.print(f"- {note}")
