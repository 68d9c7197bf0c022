"""The plan: which layers where, in which order of operations, what that is predicted to cost, and how good it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from bapipe.errors import Fault
from bapipe.faults import Bytes, Count, Document, Duration, Name, member, members
from bapipe.problem import PlanRequest, ScheduleName, SchemaVersion

Status = Literal["optimal", "feasible", "infeasible"]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)]
Index = Annotated[int, Field(strict=True, ge=0)]


class Stage(Document):
    """Layers on one device, or on several replicas that take micro-batches in turn (k on replica k mod r).

    Times are of one micro-batch; `load_s` is the stage's share of the bottleneck under the request's communication
    mode. `forward_share` is the part of an FPGA's DSPs that its forward engine has (schedule FBP-AS).
    """

    index: Index
    layers: Annotated[tuple[Name, ...], Field(min_length=1)]
    devices: Annotated[tuple[Name, ...], Field(min_length=1)]
    recomputed_layers: tuple[Name, ...] = ()
    forward_share: Fraction | None = None
    forward_s: Duration
    backward_s: Duration
    load_s: Duration
    peak_memory_bytes: Annotated[float, Field(ge=0)]
    memory_limit_bytes: Bytes | None


class Schedule(Document):
    """The order of operations of each device: strings such as `2F0`, that is stage, kind, micro-batch.

    Kinds: F forward, B backward, I input gradient, W weight gradient, R recompute. `orders` follow the
    cluster's devices; a device without work has an empty order. `all_reduce` says whether gradients are
    reduced while the backward runs.

    `weight_versions` None: the pipeline is flushed before the weights are updated, once a mini-batch. Otherwise there
    is no flush: each stage keeps so many versions of its weights, has as many micro-batches in flight, and updates its
    weights after every backward. `orders` are then those of a lone mini-batch, from an empty pipeline to an empty one;
    mini-batches that follow each other are executed as one of as many micro-batches.
    """

    name: ScheduleName | Literal["custom"]
    num_microbatches: Count
    microbatch_size: Count
    all_reduce: Literal["overlapped", "blocking"] = "overlapped"
    weight_versions: tuple[Count, ...] | None = None
    orders: tuple[tuple[str, ...], ...]


class DevicePrediction(Document):
    """One device over a step: seconds computing, idle seconds between its first and last operation, peak bytes."""

    device: Name
    busy_s: Duration
    span_bubble_s: Duration
    peak_memory_bytes: Annotated[float, Field(ge=0)]


class LinkPrediction(Document):
    """One direction of a link over a step: seconds that it carries transfers, and the bytes."""

    source: Name
    target: Name
    busy_s: Duration
    bytes: Annotated[float, Field(ge=0)]


class Prediction(Document):
    """What the simulator says of a plan.

    `step_time_s` is the makespan of one mini-batch, gradient reduction and optimizer step included; `period_s` the time
    per mini-batch over repeated steps; `bottleneck_s` the largest stage load of one micro-batch;
    `bubble_fraction` the idle share of the devices in use. `samples_per_s` is that of a lone mini-batch or, without a
    flush, of repeated ones.
    """

    step_time_s: Duration
    period_s: Duration
    bottleneck_s: Duration
    samples_per_s: Annotated[float, Field(ge=0)]
    bubble_fraction: Fraction
    devices: tuple[DevicePrediction, ...]
    links: tuple[LinkPrediction, ...] = ()


class Proof(Document):
    """How good a plan is known to be.

    `lower_bound_s` is a proven bound of the objective in seconds, None when none is known; `gap` is
    (objective - bound) / objective. `scope` says over what the bound holds: the `candidates` described in
    `scope_detail`, or `all_schedules` of undivided devices with one stage each.
    """

    lower_bound_s: Duration | None
    gap: Fraction | None
    scope: Literal["candidates", "all_schedules"]
    scope_detail: str
    solver: str
    tolerance: Annotated[float, Field(ge=0)]
    wall_s: Duration


NOT_PREDICTED = Prediction(
    step_time_s=0.0, period_s=0.0, bottleneck_s=0.0, samples_per_s=0.0, bubble_fraction=0.0, devices=()
)
"""What a plan made by hand says before it is simulated."""


def unproven(detail: str) -> Proof:
    """The proof of a plan that no search has found; `detail` says where it is from."""
    return Proof(
        lower_bound_s=None,
        gap=None,
        scope="candidates",
        scope_detail=detail,
        solver="none",
        tolerance=0.0,
        wall_s=0.0,
    )


class Baseline(Document):
    """What would be done without a planner. `step_time_s` None: it cannot be, and `note` says why.

    `speedup` is how many times faster the plan is.
    """

    name: str
    step_time_s: Duration | None
    speedup: Annotated[float, Field(ge=0)] | None
    note: str = ""


class Plan(Document):
    """An answer. It embeds its request, so it can be simulated and checked alone.

    An infeasible one has no stages, schedule or prediction; `explanation` names the limit and the least change.
    """

    schema_version: SchemaVersion = 1
    status: Status
    request: PlanRequest
    stages: tuple[Stage, ...] = ()
    schedule: Schedule | None = None
    prediction: Prediction | None = None
    proof: Proof
    baselines: tuple[Baseline, ...] = ()
    explanation: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def pace_s(self) -> float | None:
        """Seconds that a mini-batch takes: the step time or, without a flush, the period. None: infeasible."""
        if self.schedule is None or self.prediction is None:
            return None
        flushed = self.schedule.weight_versions is None
        return self.prediction.step_time_s if flushed else self.prediction.period_s

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterator[Fault]:
        solved = member(raw, "status") in ("optimal", "feasible")
        for field in ("schedule", "prediction"):
            if solved and member(raw, field) is None:
                yield Fault("missing", f"a plan that is {member(raw, 'status')} has a {field}", f"/{field}")
        if solved and not members(raw, "stages"):
            yield Fault("missing", "a plan that is not infeasible has stages", "/stages")
