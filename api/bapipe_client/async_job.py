"""Jobs of asynchronous clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Generic

from bapipe.emulation import EmulationReport
from bapipe.plan import Plan
from bapipe_client import _jobs
from bapipe_client._jobs import A, C, JobKind
from bapipe_client.models import EmulationResource, PlanResource, ProgressEvent, SimulationResource, SimulationResult

if TYPE_CHECKING:
    from bapipe_client.async_client import AsyncClient


class AsyncJob(Generic[C, A]):
    """A job on the service: `resource` is what was last heard of it."""

    def __init__(self, client: AsyncClient, kind: JobKind[C, A], resource: C) -> None:
        self._client = client
        self._kind = kind
        self.resource = resource

    @property
    def id(self) -> str:
        return self.resource.id

    @property
    def state(self) -> str:
        """As it was last heard of."""
        return self.resource.state

    async def refresh(self) -> C:
        """Asks how it is now."""
        self.resource = await self._client._drive(_jobs.get(self._kind, self.id, self._client._retries))
        return self.resource

    async def wait(self, timeout_s: float | None = None) -> C:
        """Returns when the job has ended.

        Raises:
            StillRunningError: it has not, after `timeout_s`.
        """
        if not self.resource.finished:
            waiting = _jobs.wait(self._kind, self.resource, self._client._retries, most_s=timeout_s)
            self.resource = await self._client._drive(waiting)
        return self.resource

    async def result(self, timeout_s: float | None = None) -> A:
        """The answer, once the job has ended.

        Raises:
            StillRunningError: it has not, after `timeout_s`.
            InvalidInputError: what was asked turned out to be wrong.
            TimeLimitError: nothing was found in time.
            ServiceError: there is no answer for another reason.
        """
        return _jobs.answer_of(self._kind, await self.wait(timeout_s))

    def events(self) -> AsyncIterator[ProgressEvent]:
        """How far the job is, whenever that changes, at most once a second, until it has ended.

        A connection that breaks is made again, and goes on after the last event.
        """
        return self._client._events(f"{self._kind.path_of(self.id)}/events")

    async def cancel(self) -> C:
        """Ends the job; a plan that was found by then is kept, and `wait` returns it in a moment."""
        self.resource = await self._client._drive(_jobs.cancel(self._kind, self.id, self._client._retries))
        return self.resource

    async def export(self, form: str) -> str:
        """The plan, found or simulated, as a file: `json`, `html`, `csv` or `trace`. An emulation has a trace only.

        Raises:
            InvalidInputError: there is no such format.
            UnexpectedResponseError: there is no plan yet, or none at all.
        """
        return await self._client._drive(_jobs.export(self._kind, self.id, form, self._client._retries))

    async def trace(self) -> str:
        """The step that was found, for Perfetto or chrome://tracing.

        Raises:
            UnexpectedResponseError: there is none yet, or none at all.
        """
        return await self._client._drive(_jobs.trace(self._kind, self.id, self._client._retries))


class AsyncPlanJob(AsyncJob[PlanResource, Plan]):
    """A search on the service."""

    async def plan(self, timeout_s: float | None = None) -> Plan:
        """`result`, by the name of what it is."""
        return await self.result(timeout_s)


AsyncSimulationJob = AsyncJob[SimulationResource, SimulationResult]
AsyncEmulationJob = AsyncJob[EmulationResource, EmulationReport]
