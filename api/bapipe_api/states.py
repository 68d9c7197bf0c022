"""The states of a plan on the service, and which of them a solved plan is in."""

from __future__ import annotations

from enum import StrEnum

from bapipe.plan import Plan


class State(StrEnum):
    """Where a plan is: `running`, then for good one of the others. Clients must expect more (queued, cancelling)."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    INFEASIBLE = "infeasible"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    FAILED = "failed"


def state_of(plan: Plan, *, cancelled: bool) -> State:
    """`timed_out`: the time limit ended the search before the plan was as good as the request asked."""
    if plan.status == "infeasible":
        return State.INFEASIBLE
    if plan.status == "optimal" or _good_enough(plan):
        return State.SUCCEEDED
    if cancelled:
        return State.CANCELLED
    return State.TIMED_OUT if plan.proof.wall_s >= plan.request.time_limit_s else State.SUCCEEDED


def _good_enough(plan: Plan) -> bool:
    return plan.proof.gap is not None and plan.proof.gap <= plan.request.gap
