"""Work that a service does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import typer
from pydantic import BaseModel

from bapipe.errors import Fault, InvalidInputError
from bapipe.plan import Plan
from bapipe.problem import ModelProfile, PlanRequest
from bapipe_cli.backend import Presets, ProfileText
from bapipe_cli.guard import NothingFitsError, ServerError
from bapipe_cli.interrupt import Interrupt
from bapipe_cli.progress import Report, search_progress

if TYPE_CHECKING:
    from bapipe_client import Client, PlanJob, PlanResource

LOOK_EVERY_S = 1.0
"""How long it takes at most until a Ctrl-C is passed on to the service."""


class There:
    """The `Backend` at an address."""

    def __init__(self, url: str) -> None:
        if not _is_address(url):
            raise typer.BadParameter(f"{url!r} is no address like http://127.0.0.1:8000", param_hint="--server")
        self._url = url

    @contextmanager
    def _client(self) -> Iterator[Client]:
        """Talks to the service. What goes wrong, and is not about the input, is a `ServerError`."""
        from bapipe_client import Client, ServiceError

        try:
            with Client(self._url) as client:
                yield client
        except ServiceError as error:
            raise ServerError(str(error)) from None

    def plan(self, request: PlanRequest, title: str, *, solver_log: bool = False) -> tuple[Plan, bool]:
        if solver_log:
            detail = "a service keeps its solvers' logs to itself; plan here"
            raise typer.BadParameter(detail, param_hint="--solver-log")
        with self._client() as client, Interrupt() as interrupt:
            job = client.submit(request)
            with search_progress(f"{title} on {self._url}", request.time_limit_s) as report:
                resource = _followed(job, interrupt, report)
            if interrupt.requested and resource.state == "cancelled" and resource.plan is None:
                raise KeyboardInterrupt
            return job.plan(), interrupt.requested

    def validate(self, request: PlanRequest) -> tuple[str, ...]:
        with self._client() as client:
            return client.validate(request).assumptions

    def import_profile(self, source: ProfileText) -> ModelProfile:
        with self._client() as client:
            return client.import_profile(
                source.text.encode(), format=source.form, profile_batch=source.profile_batch, name=source.name
            )

    def export(self, plan: str, form: str) -> str:
        from bapipe_client import NotFoundError

        with self._client() as client:
            try:
                job = client.job(plan)
            except NotFoundError:
                detail = f"{self._url} has no plan {plan!r}; name one by its id there, not by its file"
                raise InvalidInputError([Fault("not_found", detail)]) from None
            if not job.resource.finished:
                raise ServerError(f"plan {plan} is {job.state}: there is nothing to export yet")
            if job.plan().status == "infeasible":
                raise NothingFitsError("export")
            return client.export(plan, form)

    def presets(self) -> Presets:
        with self._client() as client:
            specs = {name: cluster.name for name, cluster in client.clusters().items()}
            return Presets(client.devices(), client.links(), client.examples(), specs)

    def preset_readers(self) -> Mapping[str, Callable[[], BaseModel]]:
        from bapipe.presets import ALIASES

        with self._client() as client:
            kinds, links, clusters = client.devices(), client.links(), client.clusters()
            examples = client.examples()
        return {
            **{name: partial(kinds.__getitem__, name) for name in kinds},
            **{alias: partial(kinds.__getitem__, kind) for alias, kind in ALIASES.items() if kind in kinds},
            **{name: partial(links.__getitem__, name) for name in links},
            **{name: partial(self._example, name) for name in examples},
            **{name: partial(clusters.__getitem__, name) for name in clusters},
        }

    def _example(self, name: str) -> ModelProfile:
        with self._client() as client:
            return client.example(name)


def _followed(job: PlanJob, interrupt: Interrupt, report: Report) -> PlanResource:
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


def _report_events(job: PlanJob, report: Report) -> None:
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
