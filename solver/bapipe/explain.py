"""Why a plan is as it is, and what would make an infeasible request feasible."""

from __future__ import annotations

import math

import numpy as np

from bapipe.assembly import Draft
from bapipe.cost.cut_costs import memory_limit
from bapipe.formulations.base import PartitionProblem, Stop
from bapipe.formulations.bottleneck import least_peak_bytes
from bapipe.problem import PlanRequest
from bapipe.quantities import bytes_text, percent_text, seconds_text


def explain(request: PlanRequest, draft: Draft) -> tuple[str, ...]:
    """What limits `draft`: its most loaded stage and layer, the fullest device, devices left idle."""
    time = _most_loaded(draft) if len(draft.layers) > 1 else _exposed_reduction(draft)
    return (*time, *_fullest(draft), *_idle(request, draft))


def explain_infeasible(request: PlanRequest, problems: list[PartitionProblem], stop: Stop) -> tuple[str, ...]:
    """The least memory of a device at which one of `problems` fits, and the layer that needs most alone."""
    lines = [_largest_layer(request, problems)] if problems else []
    needs = [(least_peak_bytes(problem, stop), order) for order, problem in enumerate(problems)]
    if needs:
        need, order = min(needs)
        problem = problems[order]
        reserve = _reserve(request)
        lines.append(
            f"it would fit with {bytes_text(need + reserve)} on every device ({math.ceil(need + reserve)} bytes): "
            f"{problem.schedule}, {problem.num_stages} stages, {problem.num_microbatches} micro-batches"
        )
    return tuple(lines)


def _exposed_reduction(draft: Draft) -> list[str]:
    """What data parallelism pays beyond compute."""
    simulation = draft.simulation
    if not simulation.reductions:
        return []
    whole = sum(reduction.end_s - reduction.start_s for reduction in simulation.reductions)
    exposed = max(reduction.end_s for reduction in simulation.reductions) - max(simulation.operations.end_s)
    return [
        f"reducing gradients takes {seconds_text(whole)}, {seconds_text(max(exposed, 0.0))} of it after the backward"
    ]


def _most_loaded(draft: Draft) -> list[str]:
    cost = draft.simulation.cost
    work = [stage.forward_s + stage.backward_s for stage in cost.stages]
    stage = int(np.argmax(work))
    share = work[stage] / (sum(work) / len(work)) - 1 if sum(work) else 0.0
    line = f"stage {stage} does most: {seconds_text(work[stage])} a micro-batch"
    return [f"{line}, {percent_text(share)} above the mean of the stages"]


def _fullest(draft: Draft) -> list[str]:
    limited = [
        (peak / limit, stage)
        for stage, (peak, limit) in enumerate(zip(draft.peak_memory_bytes, draft.limit_bytes, strict=True))
        if limit
    ]
    if not limited:
        return []
    share, stage = max(limited)
    peak = draft.peak_memory_bytes[stage]
    return [f"stage {stage} is fullest: {bytes_text(peak)}, {percent_text(share)} of its device's memory"]


def _idle(request: PlanRequest, draft: Draft) -> list[str]:
    idle = len(request.cluster.devices) - draft.candidate.num_devices
    return [f"{idle} of {len(request.cluster.devices)} devices stay idle: using them would be slower"] if idle else []


def _reserve(request: PlanRequest) -> int:
    used = {device.kind for device in request.cluster.devices}
    return max(kind.reserved_bytes for kind in request.cluster.kinds if kind.name in used)


def _largest_layer(request: PlanRequest, problems: list[PartitionProblem]) -> str:
    costs = min((problem.costs for problem in problems), key=lambda costs: float(costs.stash_bytes[-1]))
    graph = costs.space.graph
    alone = costs.layer_bytes
    position = int(np.argmax(alone))
    layer = request.profile.layers[graph.layers[position]]
    limit = max(memory_limit(request, device) for device in range(len(request.cluster.devices)))
    fits = "fits" if alone[position] <= limit else "does not fit"
    return (
        f"layer {layer.id!r} alone needs {bytes_text(alone[position])} and {fits} "
        f"the {bytes_text(limit)} of the largest device"
    )
