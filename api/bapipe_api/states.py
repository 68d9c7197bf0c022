"""The states of a job on the service, and which of them a solved plan is in."""

from __future__ import annotations

from enum import StrEnum

from bapipe.plan import Plan


class State(StrEnum):
    """Where a job is: `queued`, `running`, `cancelling`, then for good one of the others. Clients must expect more."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    INFEASIBLE = "infeasible"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    FAILED = "failed"


UNFINISHED = (State.QUEUED, State.RUNNING, State.CANCELLING)
HELD = (State.RUNNING, State.CANCELLING)
"""The states of a job that a worker holds."""

PROVEN = (State.SUCCEEDED, State.INFEASIBLE)
"""The states whose answer would be the same again, however long the search took."""


def state_of(plan: Plan, *, cancelled: bool) -> State:
    """`timed_out`: the time limit ended the search before the plan was as good as the request asked."""
    gap = plan.proof.gap
    if plan.status == "infeasible":
        return State.INFEASIBLE
    if plan.status == "optimal" or (gap is not None and gap <= plan.request.gap + plan.proof.tolerance):
        return State.SUCCEEDED
    return State.CANCELLED if cancelled else State.TIMED_OUT
