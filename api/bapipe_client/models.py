"""What the service answers with. Fields that a later service adds are ignored."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from bapipe.emulation import EmulationReport
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


class ProgressEvent(Answer):
    """How far a job is; of a search, seconds a mini-batch of the best plan so far, and of what no plan can beat."""

    sequence: int
    state: str
    phase: str = ""
    attempt: int = 0
    incumbent_s: float | None = None
    lower_bound_s: float | None = None
    gap: float | None = None

    @property
    def finished(self) -> bool:
        return self.state in FINAL_STATES


class Health(Answer):
    """That the service is `ready`."""

    status: str


class Validation(Answer):
    """That a request can be planned, and what a plan for it would assume."""

    assumptions: tuple[str, ...]


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


class JobSummary(Answer):
    """A job on the service: where it is.

    `state`: queued, running, cancelling; then for good succeeded, infeasible, timed_out (of a search: with the best
    plan found), cancelled or failed. `attempts`: how often it was begun.
    """

    id: str
    state: str
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: int = 0

    @property
    def finished(self) -> bool:
        return self.state in FINAL_STATES


class JobResource(JobSummary):
    """A job on the service. `error`: why there is no answer, or no better one."""

    error: Problem | None = None


class PlanResource(JobResource):
    """A plan on the service, as soon as there is one."""

    plan: Plan | None = None


class SimulationResource(JobResource):
    """A simulation on the service, with its answer as soon as there is one."""

    simulation: SimulationResult | None = None


class EmulationResource(JobResource):
    """An emulation on the service, with its answer as soon as there is one."""

    emulation: EmulationReport | None = None


class JobPage(Answer):
    """Jobs of one kind, newest first, and the token of the page after them."""

    jobs: Annotated[tuple[JobSummary, ...], Field(validation_alias=AliasChoices("plans", "simulations", "emulations"))]
    next_page_token: str | None = None
