"""What the service answers with. Fields that a later service adds are ignored."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from bapipe.errors import Fault
from bapipe.plan import Plan, Prediction

FINAL_STATES = frozenset({"succeeded", "infeasible", "timed_out", "cancelled", "failed"})


class Answer(BaseModel):
    """The base of all answers."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Problem(Answer):
    """An RFC 9457 problem document."""

    status: int
    title: str = ""
    detail: str = ""
    errors: tuple[Fault, ...] = ()


class PlanResource(Answer):
    """A plan on the service: where its search is, and its answer as soon as there is one.

    `state`: queued, running, cancelling; then for good succeeded, infeasible, timed_out (with the best plan found),
    cancelled or failed. `error` says why there is no plan, or no better one.
    """

    id: str
    state: str
    created_at: datetime
    finished_at: datetime | None = None
    plan: Plan | None = None
    error: Problem | None = None

    @property
    def finished(self) -> bool:
        return self.state in FINAL_STATES


class Operations(Answer):
    """Operations in columns, device by device in the order of execution. `device` indexes `Timeline.devices`."""

    device: tuple[int, ...]
    stage: tuple[int, ...]
    kind: tuple[str, ...]
    microbatch: tuple[int, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


class Transfers(Answer):
    """Transfers in columns. `source` and `target` index `Timeline.devices`; kind F is an activation, B a gradient."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    kind: tuple[str, ...]
    microbatch: tuple[int, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


class Reduction(Answer):
    """One bucket of a stage's gradients on the ring of its replicas."""

    stage: int
    size_bytes: float
    start_s: float
    end_s: float


class Timeline(Answer):
    """A step, event by event. `devices`: those in use, stage by stage; the optimizer's columns follow them."""

    devices: tuple[str, ...]
    operations: Operations
    transfers: Transfers
    reductions: tuple[Reduction, ...]
    optimizer_start_s: tuple[float, ...]
    optimizer_end_s: tuple[float, ...]


class SimulationResult(Answer):
    """What a plan costs, and when what happens.

    `faults`: what of the plan is not as it says or may be, such as too little memory; empty for a sound plan.
    """

    prediction: Prediction
    timeline: Timeline
    faults: tuple[Fault, ...]
