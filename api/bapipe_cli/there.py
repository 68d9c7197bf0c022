"""Work that a service does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from pydantic import BaseModel

from bapipe.emulation import EmulationOptions, EmulationReport
from bapipe.errors import Fault, InvalidInputError
from bapipe.no_flush import in_a_row, steps_drawn
from bapipe.plan import Plan
from bapipe.problem import ModelProfile, PlanRequest
from bapipe_cli.backend import Form, Presets, ProfileText, Simulated
from bapipe_cli.guard import NothingFitsError, ServerError
from bapipe_cli.interrupt import Interrupt
from bapipe_cli.progress import Report, search_progress, waiting_progress

if TYPE_CHECKING:
    from bapipe_client import Client, Job, Timeline
    from bapipe_client.models import JobResource

C = TypeVar("C", bound="JobResource")
A = TypeVar("A")

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

    def simulate(self, plan: Plan, wanted: Collection[Form]) -> Simulated:
        with self._client() as client, Interrupt("stopping") as interrupt:
            job = client.submit_simulation(plan)
            found = self._result(job, interrupt, "simulating")
            picture = None
            if "picture" in wanted:
                steps = steps_drawn(plan)
                more = None if steps == 1 else client.submit_simulation(in_a_row(plan, steps))
                drawn = found if more is None else self._result(more, interrupt, "simulating several steps")
                picture = _Sent(plan, drawn.timeline)
            writers: dict[Form, Callable[[], str]] = {"html": lambda: job.export("html"), "trace": job.trace}
            files = {form: write() for form, write in writers.items() if form in wanted}
            return Simulated(found.prediction, found.faults, picture, files)

    def emulate(self, plan: Plan, options: EmulationOptions, *, trace: bool) -> tuple[EmulationReport, str | None]:
        with self._client() as client, Interrupt("stopping") as interrupt:
            try:
                job = client.submit_emulation(plan, options)
                return self._result(job, interrupt, "emulating"), job.trace() if trace else None
            except InvalidInputError as error:
                raise InvalidInputError([_as_here(fault) for fault in error.faults]) from None

    def _result(self, job: Job[C, A], interrupt: Interrupt, title: str) -> A:
        """What a job found that has nothing to show before its end.

        Raises:
            KeyboardInterrupt: it was cancelled before that.
        """
        with waiting_progress(f"{title} on {self._url}") as report:
            ended = _followed(job, interrupt, report)
        if interrupt.requested and ended.state == "cancelled":
            raise KeyboardInterrupt
        return job.result()

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


class _Sent:
    """The picture of a step that a service sent: `bapipe.timeline.picture.Picture`."""

    def __init__(self, plan: Plan, timeline: Timeline) -> None:
        split = {device for stage in plan.stages if stage.forward_share is not None for device in stage.devices}
        self.devices = timeline.devices
        self.operations = timeline.operations
        self.reductions = timeline.reductions
        self.optimizer_start_s = timeline.optimizer_start_s
        self.optimizer_end_s = timeline.optimizer_end_s
        self.engines = tuple(1 + (device in split) for device in timeline.devices)


def _as_here(fault: Fault) -> Fault:
    """A fault of an emulation without the part of the request that it is in: here the parts are given apart."""
    return replace(fault, pointer=fault.pointer.removeprefix("/plan").removeprefix("/options"))


def _followed(job: Job[C, A], interrupt: Interrupt, report: Report) -> C:
    """The job once it has ended, which Ctrl-C brings about; its progress is reported where somebody sees it."""
    from bapipe_client import ServiceError, StillRunningError

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
        except KeyboardInterrupt:  # the second one came before the first was passed on
            if not cancelled:
                with suppress(ServiceError):
                    job.cancel()
            raise


def _report_events(job: Job[Any, Any], report: Report) -> None:
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
