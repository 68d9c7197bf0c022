"""Why a plan is as it is, and what would make an infeasible request feasible."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bapipe.assembly import Draft
from bapipe.candidates import left_out
from bapipe.cost.cut_costs import memory_limit, sends_past_stages
from bapipe.formulations.base import OutOfTimeError, PartitionProblem, Stop
from bapipe.formulations.bottleneck import least_peak_bytes
from bapipe.graph import graph_of
from bapipe.link_modes import variant
from bapipe.problem import PlanRequest
from bapipe.quantities import bytes_text, counted, percent_text, seconds_text


def explain(request: PlanRequest, draft: Draft) -> tuple[str, ...]:
    """What limits `draft`: its most loaded stage and layer, the fullest device, devices left idle."""
    time = _most_loaded(draft) if len(draft.layers) > 1 else _exposed_reduction(draft)
    return (*_called(request, draft), *_whole(request), *time, *_fullest(draft), *_idle(request, draft))


def _called(request: PlanRequest, draft: Draft) -> list[str]:
    """What the paper calls the schedule, and how devices are split."""
    candidate = draft.candidate
    called = variant(request, candidate.schedule, candidate.num_devices)
    lines = [] if called is None else [f"{candidate.schedule} over {called[1]} links is {called[0]}"]
    if draft.shares:
        *most, last = [percent_text(share) for share in draft.shares]
        parts = f"{', '.join(most)} and {last}" if most else last
        lines.append(f"forward engines have {parts} of their devices")
    return lines


def _whole(request: PlanRequest) -> list[str]:
    """That the bottleneck was searched at one size only, which nobody asked for."""
    named = request.microbatch_sizes is not None or request.microbatch_counts is not None
    if request.objective != "bottleneck" or named or request.batch_size == 1:
        return []
    return ["the bottleneck is that of the whole mini-batch as one micro-batch: no other micro-batches were asked for"]


def explain_infeasible(
    request: PlanRequest,
    problems: list[PartitionProblem],
    replicated: list[Draft],
    stop: Stop,
    ask: Callable[[], str] | None = None,
) -> tuple[str, ...]:
    """Why no pipeline of `problems` and no data-parallel draft of `replicated` fits, and what would make one fit.

    `ask` finds the latter where `problems` do not have all that is asked for.
    """
    if not problems and not replicated:
        return (_no_candidate(request),)
    known = (*_smallest_device(request), *_largest_layer(request, problems), *_smaller(request))
    try:
        return (*known, ask() if ask else _enough(request, problems, replicated, stop))
    except OutOfTimeError:
        return (*known, "how much memory would be enough was not found in time")


def _smaller(request: PlanRequest) -> list[str]:
    small = left_out(request)
    return [f"micro-batches of {small[-1]} and fewer samples, which need less, were not tried"] if small else []


def _enough(request: PlanRequest, problems: list[PartitionProblem], replicated: list[Draft], stop: Stop) -> str:
    if sends_past_stages(request, graph_of(request.profile)):
        return "how much memory would be enough depends on which tensors are sent past stages"
    needs = [(max(draft.peak_memory_bytes), str(draft.candidate)) for draft in replicated]
    needs += [(least_peak_bytes(problem, stop), _named(problem)) for problem in problems]
    need, where = min(needs)
    if math.isinf(need):
        return "its groups and pins leave too few places to cut the model for as many stages as are asked for"
    size = f"{bytes_text(need)} on every device ({math.ceil(need)} bytes)"
    return f"it would fit with {size}, cut along its topological order: {where}"


def _no_candidate(request: PlanRequest) -> str:
    devices, layers = len(request.cluster.devices), len(request.profile.layers)
    return (
        f"nothing that is allowed can be tried: {layers} layers, {devices} devices, mini-batch {request.batch_size}; "
        "allow more schedules, idle devices, more stages or smaller micro-batches"
    )


def _named(problem: PartitionProblem) -> str:
    stages, count = counted(problem.num_stages, "stage"), counted(problem.num_microbatches, "micro-batch")
    return f"{problem.schedule}, {stages}, {count}"


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
    if draft.fullest is None:
        return []
    device, peak, limit = draft.fullest
    return [f"{device} is fullest: {bytes_text(peak)}, {percent_text(peak / max(limit, 1))} of its memory"]


def _idle(request: PlanRequest, draft: Draft) -> list[str]:
    devices, layers = len(request.cluster.devices), len(request.profile.layers)
    used = draft.candidate.num_devices
    if used == devices:
        return []
    why = "no plan was found that uses them in the order given, fits, and is faster"
    if used == request.max_stages:
        why = f"max_stages allows {used} stages"
    elif used == layers:
        why = "there are no more layers to cut"
    return [f"{devices - used} of {devices} devices stay idle: {why}"]


def _smallest_device(request: PlanRequest) -> list[str]:
    """Named where devices differ: stages are put on the first devices in the order given, whatever their size."""
    limits = [memory_limit(request, position) for position in range(len(request.cluster.devices))]
    if len(set(limits)) == 1:
        return []
    position = int(np.argmin(limits))
    return [f"{request.cluster.devices[position].id} has only {bytes_text(limits[position])} to use"]


def _largest_layer(request: PlanRequest, problems: list[PartitionProblem]) -> list[str]:
    """The layer that needs most, where no device could hold even that."""
    limit = max(memory_limit(request, position) for position in range(len(request.cluster.devices)))
    if not problems:
        return []
    costs = min((problem.costs for problem in problems), key=lambda costs: float(costs.stash_bytes[-1]))
    position = int(np.argmax(costs.layer_bytes))
    alone = float(costs.layer_bytes[position])
    if alone <= limit:
        return []
    layer = request.profile.layers[costs.space.graph.layers[position]]
    return [f"layer {layer.id!r} alone needs {bytes_text(alone)} of the {bytes_text(limit)} of a device"]
