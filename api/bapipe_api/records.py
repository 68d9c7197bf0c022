"""What the store says of a job, detached from it; and how a job ends."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from bapipe.errors import Fault
from bapipe_api.kinds import Kind
from bapipe_api.problems import problem
from bapipe_api.states import UNFINISHED, State


@dataclass(frozen=True)
class Record:
    """A job as it is stored. `result` (a plan, a simulation) and `error` (a problem) are JSON texts."""

    id: str
    kind: Kind
    state: State
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: int = 0
    result: str | None = None
    error: str | None = None
    last_event: int = 0

    @property
    def finished(self) -> bool:
        return self.state not in UNFINISHED


@dataclass(frozen=True)
class Event:
    """One thing that became of a job; `data` is JSON text. Only the last event of a job is `final`."""

    sequence: int
    data: str
    final: bool


@dataclass(frozen=True)
class Progress:
    """Where a job is in its work: seconds of the objective, None where not known."""

    phase: str
    incumbent_s: float | None = None
    lower_bound_s: float | None = None
    gap: float | None = None


@dataclass(frozen=True)
class Ending:
    """The last state of a job, with its answer or its problem as JSON."""

    state: State
    result: str | None = None
    error: str | None = None
    progress: Progress | None = None


CANCELLED = Fault("cancelled", "the job was cancelled; what it had found by then is kept")
INTERNAL = Fault("internal_error", "the job met an error of its own; the service's log says which")


def cancelled(result: str | None = None, progress: Progress | None = None) -> Ending:
    return Ending(State.CANCELLED, result, problem_json(HTTPStatus.CONFLICT, CANCELLED), progress)


def killed(attempts: int, result: str | None = None) -> Ending:
    """The process that did the job, or its worker, ended `attempts` times before the job did."""
    detail = (
        f"{attempts} attempts at this job were ended from outside, or crashed; it may need more memory than its "
        "machine has"
    )
    return Ending(State.FAILED, result, problem_json(HTTPStatus.INTERNAL_SERVER_ERROR, Fault("killed", detail)))


def problem_json(status: HTTPStatus, *faults: Fault) -> str:
    return json.dumps(problem(status, faults).model_dump())


def event_json(state: State, attempt: int, progress: Progress | None) -> str:
    """The data of an event: the state, and what is known of the answer."""
    known = progress or Progress(phase=state.value)
    return json.dumps(
        {
            "state": state.value,
            "attempt": attempt,
            "phase": known.phase,
            "incumbent_s": known.incumbent_s,
            "lower_bound_s": known.lower_bound_s,
            "gap": known.gap,
        }
    )
