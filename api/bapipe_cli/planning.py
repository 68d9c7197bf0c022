"""What the answer to a plan request tells a script."""

from __future__ import annotations

from bapipe.plan import Plan
from bapipe_cli.exits import ExitCode


def exit_code(plan: Plan, *, interrupted: bool = False) -> ExitCode:
    """What a script learns of `plan`: `TIME_LIMIT` says that more time might have found a better one."""
    if interrupted:
        return ExitCode.INTERRUPTED
    if plan.status == "infeasible":
        return ExitCode.INFEASIBLE
    met = plan.proof.gap is not None and plan.proof.gap <= plan.request.gap + plan.proof.tolerance
    return ExitCode.OK if plan.status == "optimal" or met else ExitCode.TIME_LIMIT
