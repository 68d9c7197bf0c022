"""Where a request is answered: in a child process here, or by a service."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from bapipe.errors import TimeLimitError
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_cli.exits import ExitCode
from bapipe_cli.guard import ServerError
from bapipe_cli.interrupt import Interrupt
from bapipe_cli.progress import Report, search_progress

if TYPE_CHECKING:
    from bapipe_client import Job, PlanResource

LOOK_EVERY_S = 1.0
"""How long it takes at most until a Ctrl-C is passed on to the service."""


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
    met = plan.proof.gap is not None and plan.proof.gap <= plan.request.gap + plan.proof.tolerance
    return ExitCode.OK if plan.status == "optimal" or met else ExitCode.TIME_LIMIT


def plan_there(request: PlanRequest, url: str) -> tuple[Plan, bool]:
    """The plan as the service at `url` finds it, and whether Ctrl-C cut the search short.

    Raises:
        typer.BadParameter: `url` is none.
        InvalidInputError: the service refuses the request.
        TimeLimitError: no plan was found in time.
        ServerError: there is no plan for a reason that is not the request's.
        KeyboardInterrupt: on a second Ctrl-C, or on one that comes before any plan was found.
    """
    from bapipe_client import Client, NotAllowedError, ServiceError

    if not _is_address(url):
        raise typer.BadParameter(f"{url!r} is no address like http://127.0.0.1:8000", param_hint="--server")
    try:
        with Client(url) as client, Interrupt() as interrupt:
            job = client.submit(request)
            with search_progress(f"planning on {url}", request.time_limit_s) as report:
                resource = _followed(job, interrupt, report)
        if interrupt.requested and resource.state == "cancelled" and resource.plan is None:
            raise KeyboardInterrupt
        return job.plan(), interrupt.requested
    except NotAllowedError as error:
        raise ServerError(f"{error}; give a key in BAPIPE_API_KEY") from None
    except ServiceError as error:
        raise ServerError(str(error)) from None


def _followed(job: Job, interrupt: Interrupt, report: Report) -> PlanResource:
    """The job once it has ended, which Ctrl-C brings about; its progress is reported where somebody sees it."""
    from bapipe_client import StillRunningError

    if sys.stderr.isatty():
        threading.Thread(target=_report_events, args=(job, report), daemon=True).start()
    cancelled = False
    while True:
        try:
            return job.wait(LOOK_EVERY_S)
        except StillRunningError:
            if interrupt.requested and not cancelled:
                job.cancel()
                cancelled = True


def _report_events(job: Job, report: Report) -> None:
    """What goes wrong here goes wrong where the plan is waited for as well, and is said there."""
    from bapipe_client import ServiceError

    with suppress(ServiceError, RuntimeError):
        for event in job.events():
            report(event)


def _is_address(url: str) -> bool:
    from httpx import URL, InvalidURL

    try:
        address = URL(url)
    except InvalidURL:
        return False
    return address.scheme in ("http", "https") and bool(address.host)
