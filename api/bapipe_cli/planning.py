"""Where a request is answered: in a child process here, or by a service."""

from __future__ import annotations

import typer

from bapipe.errors import TimeLimitError
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_cli.exits import ExitCode
from bapipe_cli.guard import ServerError
from bapipe_cli.interrupt import Interrupt
from bapipe_cli.progress import search_progress


def plan_here(request: PlanRequest, title: str, *, solver_log: bool = False) -> tuple[Plan, bool]:
    """The plan, and whether Ctrl-C cut the search short.

    Raises:
        InvalidInputError: the request asks for what is not searched yet.
        TimeLimitError: no plan was found in time.
        KeyboardInterrupt: on a second Ctrl-C, or on one that comes before any plan was found.
    """
    from bapipe.planner import plan_isolated

    with Interrupt() as interrupt, search_progress(title, request.time_limit_s) as report:
        try:
            answer = plan_isolated(
                request, on_progress=report, should_stop=lambda: interrupt.requested, solver_log=solver_log
            )
        except TimeLimitError:
            if interrupt.requested:
                raise KeyboardInterrupt from None
            raise
    return answer, interrupt.requested


def exit_code(plan: Plan, *, interrupted: bool = False) -> ExitCode:
    """What a script learns of `plan`: `TIME_LIMIT` says that more time might have found a better one."""
    if interrupted:
        return ExitCode.INTERRUPTED
    if plan.status == "infeasible":
        return ExitCode.INFEASIBLE
    met = plan.proof.gap is not None and plan.proof.gap <= plan.request.gap
    return ExitCode.OK if plan.status == "optimal" or met else ExitCode.TIME_LIMIT


def plan_there(request: PlanRequest, url: str) -> Plan:
    """The plan as the service at `url` finds it. Ctrl-C leaves at once, and ends the search there.

    Raises:
        typer.BadParameter: `url` is none.
        InvalidInputError: the service refuses the request.
        ServerError: there is no plan for a reason that is not the request's.
    """
    from bapipe_client import Client, ServiceError

    if not _is_address(url):
        raise typer.BadParameter(f"{url!r} is no address like http://127.0.0.1:8000", param_hint="--server")
    try:
        with Client(url) as client, search_progress(f"planning on {url}", request.time_limit_s):
            return client.plan(request)
    except ServiceError as error:
        raise ServerError(str(error)) from None


def _is_address(url: str) -> bool:
    from httpx import URL, InvalidURL

    try:
        address = URL(url)
    except InvalidURL:
        return False
    return address.scheme in ("http", "https") and bool(address.host)
