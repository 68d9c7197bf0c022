"""What users do without a planner, on the same devices: what each plan is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

import numpy as np

from bapipe.assembly import Assembler, Draft
from bapipe.candidates import DATA_PARALLEL, MAX_OPERATIONS, Candidate, microbatch_sizes
from bapipe.cuts import cut_space
from bapipe.errors import InvalidInputError
from bapipe.plan import Baseline
from bapipe.problem import PlanRequest, ScheduleName
from bapipe.quantities import bytes_text, counted

OPERATIONS, EVENTS = 100_000, 5_000
"""Forwards that may be replayed to find the best micro-batch size of one baseline: in one sweep, or event by event."""


def measure_baselines(request: PlanRequest, assembler: Assembler) -> Iterator[tuple[Baseline, Draft | None]]:
    """Each baseline on all devices, at the best micro-batch size of those allowed, as the simulator times it.

    The draft is None where none fits. Speed-ups are for `with_speedups` to fill in.

    Data parallelism with gradients reduced while the backward runs (`data-parallel`) and after it
    (`data-parallel-blocking`); GPipe and 1F1B with equal numbers of layers a device.
    """
    space = cut_space(request.profile, "topological-order")
    devices = len(request.cluster.devices)
    stages = min(devices, space.size - 1)
    shares = np.linspace(0, space.size - 1, stages + 1).round().astype(int)[1:]
    equal = tuple(int(cut) for cut in shares)

    def pipeline(candidate: Candidate) -> Draft:
        return assembler.pipeline(candidate, space, equal)

    def blocking(candidate: Candidate) -> Draft:
        return assembler.data_parallel(candidate, "blocking")

    named: list[tuple[str, ScheduleName, int, Callable[[Candidate], Draft]]] = [
        ("data-parallel", DATA_PARALLEL, devices, assembler.data_parallel),
        ("data-parallel-blocking", DATA_PARALLEL, devices, blocking),
        ("gpipe-equal-layers", "gpipe", stages, pipeline),
        ("1f1b-equal-layers", "1f1b", stages, pipeline),
    ]
    most = OPERATIONS if assembler.sweeps else EVENTS
    for name, schedule, count, make in named:
        yield _baseline(request, name, _best(request, schedule, count, make, most))


def with_speedups(baselines: tuple[Baseline, ...], plan_step_s: float | None) -> tuple[Baseline, ...]:
    """The baselines beside a plan whose step takes `plan_step_s`; None: there is no plan."""
    if not plan_step_s:
        return baselines
    return tuple(
        baseline
        if baseline.step_time_s is None
        else baseline.model_copy(update={"speedup": baseline.step_time_s / plan_step_s})
        for baseline in baselines
    )


def _baseline(request: PlanRequest, name: str, found: Draft | str) -> tuple[Baseline, Draft | None]:
    if isinstance(found, str):
        return Baseline(name=name, step_time_s=None, speedup=None, note=found), None
    candidate = found.candidate
    count = candidate.num_microbatches
    note = f"{counted(count, 'micro-batch')} of {candidate.microbatch_size}"
    if _breaks_pins(request, found):
        note += "; not as pinned"
    return Baseline(name=name, step_time_s=found.simulation.step_time_s, speedup=None, note=note), found


def _breaks_pins(request: PlanRequest, draft: Draft) -> bool:
    """Whether a layer is not on the device that it is pinned to: layers are shared out by their number alone."""
    on = {layer: ids for layers, ids in zip(draft.layers, draft.devices, strict=True) for layer in layers}
    return any(pin.device is not None and pin.device not in on[pin.layer] for pin in request.profile.pins)


def _best(
    request: PlanRequest, schedule: ScheduleName, count: int, make: Callable[[Candidate], Draft], most: int
) -> Draft | str:
    batch = request.batch_size
    sizes = microbatch_sizes(request)
    every = _affordable([Candidate(schedule, size, batch // size, count) for size in sizes], most)
    if schedule == DATA_PARALLEL and count == 1:
        return "needs more than one device"
    possible = [c for c in every if schedule != DATA_PARALLEL or count <= c.num_microbatches]
    if not possible:
        return f"{batch} samples cannot be shared by {count} devices at these micro-batch sizes"
    short = [candidate for candidate in possible if candidate.num_operations <= MAX_OPERATIONS]
    if not short:
        return f"{possible[0].num_microbatches} micro-batches are too many to replay on {count} devices"
    try:
        drafts = [make(candidate) for candidate in short]
    except InvalidInputError as error:
        return f"cannot be executed: {error.faults[0].detail}"
    fitting = [draft for draft in drafts if draft.fits]
    if fitting:
        return min(fitting, key=lambda draft: draft.simulation.step_time_s)
    over = [(row[1] / max(row[2], 1), row) for draft in drafts if (row := draft.fullest) is not None]
    device, peak, limit = min(over)[1]
    return f"does not fit: {bytes_text(peak)} of {bytes_text(limit)} on {device}"


def _affordable(every: list[Candidate], most: int) -> list[Candidate]:
    """Fewest operations first, as many as are replayed in a moment; always one."""
    ordered = sorted(every, key=lambda candidate: candidate.num_operations)
    total = accumulate(candidate.num_operations for candidate in ordered)
    return [c for k, (c, so_far) in enumerate(zip(ordered, total, strict=True)) if k == 0 or so_far <= most]
