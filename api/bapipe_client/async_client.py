"""The client for asyncio: what `Client` does, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self, TypeVar

import httpx

from bapipe.emulation import EmulationOptions, EmulationReport
from bapipe.examples import ExampleSummary
from bapipe.plan import Plan
from bapipe.problem import Cluster, DeviceKind, Link, ModelProfile, PlanRequest
from bapipe_client import _core, _jobs
from bapipe_client._events import EventReader, Following
from bapipe_client._jobs import EMULATIONS, PLANS, SIMULATIONS, A, Ask, C, JobKind
from bapipe_client._retries import RetryPolicy
from bapipe_client._transport import DEFAULT_URL, Timeouts, opened, unreachable
from bapipe_client.async_job import AsyncEmulationJob, AsyncJob, AsyncPlanJob, AsyncSimulationJob
from bapipe_client.errors import ServiceError
from bapipe_client.models import JobSummary, PlanResource, ProgressEvent, SimulationResult, Validation

R = TypeVar("R")


class AsyncClient:
    """A BaPipe service, to be called.

    Example:
        async with AsyncClient("http://127.0.0.1:8000") as client:
            plan = await client.plan(profile=profile, cluster=cluster, batch_size=128)
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        connect_timeout: float = 5.0,
        read_timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`api_key`: of `bapipe keys create`; None: the one in BAPIPE_API_KEY, if any.

        `connect_timeout` and `read_timeout` are in seconds; a job has its own time on top. `retries`: how often a
        call is repeated when the service is busy (`Retry-After` is honoured) or not reached: no job is made twice by
        that. `transport`: httpx's, for proxies and tests.
        """
        self._timeouts = Timeouts(connect_timeout, read_timeout)
        self._retries = RetryPolicy(most=retries)
        self._http = opened(httpx.AsyncClient, base_url, api_key, transport)

    async def close(self) -> None:
        """Closes the connections. The client cannot be used any more."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def plan(self, request: PlanRequest | None = None, /, *, fresh: bool = False, **fields: Any) -> Plan:
        """The best plan for `request`, or for the request with these `fields`.

        Returns when the search ends: at the latest when its time limit is over, with the best plan found by then; on a
        busy service it may have to wait for its turn first. An infeasible problem is an answer too (`plan.status`).
        `fresh`: search again though the same was asked before.

        Raises:
            InvalidInputError: the request is wrong; it holds every fault.
            TimeLimitError: no plan was found in time.
            ServiceError: there is no plan for a reason that is not the request's.
        """
        ask = Ask(_core.request_of(request, fields).model_dump_json(), fresh=fresh)
        return await self._drive(_jobs.answer(PLANS, ask, self._retries))

    async def submit(
        self,
        request: PlanRequest | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        fresh: bool = False,
        **fields: Any,
    ) -> AsyncPlanJob:
        """Asks for a plan as `plan` does, and returns at once. The job goes on though this process may end.

        `idempotency_key`: asking again with the same one gives the same job; None: one that nobody else has.

        Raises:
            InvalidInputError: the request is wrong; it holds every fault.
            ServiceError: the service does not take it.
        """
        ask = Ask(_core.request_of(request, fields).model_dump_json(), idempotency_key, fresh)
        return AsyncPlanJob(self, PLANS, await self._drive(_jobs.submit(PLANS, ask, self._retries)))

    async def job(self, plan_id: str) -> AsyncPlanJob:
        """The search that was submitted before, by its id.

        Raises:
            NotFoundError: the service has no such plan.
        """
        return AsyncPlanJob(self, PLANS, await self.get_plan(plan_id))

    def plans(self, *, states: Sequence[str] = (), page_size: int = 100) -> AsyncIterator[JobSummary]:
        """The plans that were asked for, newest first; only those in `states`, if any are given."""
        return self._pages(PLANS, states, page_size)

    async def get_plan(self, plan_id: str) -> PlanResource:
        """A plan that was asked for before, by its id.

        Raises:
            NotFoundError: the service has no such plan.
        """
        return await self._drive(_jobs.get(PLANS, plan_id, self._retries))

    async def export(self, plan_id: str, form: str) -> str:
        """A plan as a file: `json`, `html`, `csv` or `trace`.

        Raises:
            NotFoundError: the service has no such plan.
            InvalidInputError: there is no such format.
            UnexpectedResponseError: there is no plan yet, or none at all.
        """
        return await self._drive(_jobs.export(PLANS, plan_id, form, self._retries))

    async def simulate(self, plan: Plan) -> SimulationResult:
        """What `plan` costs, event by event. Returns when it is simulated.

        Raises:
            InvalidInputError: the plan is not legal for its problem; it holds every fault.
            TimeLimitError: the simulation did not end in the time that the service gives.
            ServiceError: there is no answer for another reason.
        """
        return await self._drive(_jobs.answer(SIMULATIONS, Ask(plan.model_dump_json()), self._retries))

    async def submit_simulation(
        self, plan: Plan, *, idempotency_key: str | None = None, fresh: bool = False
    ) -> AsyncSimulationJob:
        """Asks for what `simulate` returns as `submit` asks for a plan.

        Raises:
            InvalidInputError: the plan is not legal for its problem; it holds every fault.
            ServiceError: the service does not take it.
        """
        ask = Ask(plan.model_dump_json(), idempotency_key, fresh)
        return AsyncJob(self, SIMULATIONS, await self._drive(_jobs.submit(SIMULATIONS, ask, self._retries)))

    async def simulation_job(self, simulation_id: str) -> AsyncSimulationJob:
        """The simulation that was submitted before, by its id.

        Raises:
            NotFoundError: the service has no such simulation.
        """
        return AsyncJob(self, SIMULATIONS, await self._drive(_jobs.get(SIMULATIONS, simulation_id, self._retries)))

    def simulations(self, *, states: Sequence[str] = (), page_size: int = 100) -> AsyncIterator[JobSummary]:
        """The simulations that were asked for, as `plans` lists plans."""
        return self._pages(SIMULATIONS, states, page_size)

    async def emulate(self, plan: Plan, options: EmulationOptions | None = None) -> EmulationReport:
        """A step of `plan` on its FPGAs, with the faults of `options`. Returns when it is emulated.

        Raises:
            InvalidInputError: the plan cannot be emulated; it holds every fault.
            TimeLimitError: the emulation did not end in the time that the service gives.
            ServiceError: there is no answer for another reason.
        """
        return await self._drive(_jobs.answer(EMULATIONS, Ask(_jobs.emulation(plan, options)), self._retries))

    async def submit_emulation(
        self,
        plan: Plan,
        options: EmulationOptions | None = None,
        *,
        idempotency_key: str | None = None,
        fresh: bool = False,
    ) -> AsyncEmulationJob:
        """Asks for what `emulate` returns as `submit` asks for a plan.

        Raises:
            InvalidInputError: the plan cannot be emulated; it holds every fault.
            ServiceError: the service does not take it.
        """
        ask = Ask(_jobs.emulation(plan, options), idempotency_key, fresh)
        return AsyncJob(self, EMULATIONS, await self._drive(_jobs.submit(EMULATIONS, ask, self._retries)))

    async def emulation_job(self, emulation_id: str) -> AsyncEmulationJob:
        """The emulation that was submitted before, by its id.

        Raises:
            NotFoundError: the service has no such emulation.
        """
        return AsyncJob(self, EMULATIONS, await self._drive(_jobs.get(EMULATIONS, emulation_id, self._retries)))

    def emulations(self, *, states: Sequence[str] = (), page_size: int = 100) -> AsyncIterator[JobSummary]:
        """The emulations that were asked for, as `plans` lists plans."""
        return self._pages(EMULATIONS, states, page_size)

    async def validate(self, request: PlanRequest | None = None, /, **fields: Any) -> Validation:
        """What a plan for `request` would assume.

        Raises:
            InvalidInputError: the service would refuse it; it holds every fault.
        """
        return await self._drive(_core.validate(_core.request_of(request, fields), self._retries))

    async def import_profile(
        self,
        content: bytes,
        *,
        format: str | None = None,  # noqa: A002  the word of the library
        profile_batch: int | None = None,
        name: str | None = None,
    ) -> ModelProfile:
        """The profile in a file of any format that the service knows.

        Raises:
            InvalidInputError: it is none; it holds every fault.
        """
        given = {"format": format, "profile_batch": profile_batch, "name": name}
        return await self._drive(_core.import_profile(content, given, self._retries))

    async def devices(self) -> dict[str, DeviceKind]:
        """The kinds of devices that come with the service, by name."""
        return await self._drive(_core.presets("devices", DeviceKind, self._retries))

    async def links(self) -> dict[str, Link]:
        """The links that come with the service, by name."""
        return await self._drive(_core.presets("links", Link, self._retries))

    async def clusters(self) -> dict[str, Cluster]:
        """The example clusters that come with the service, by name."""
        return await self._drive(_core.presets("clusters", Cluster, self._retries))

    async def examples(self) -> dict[str, ExampleSummary]:
        """The example profiles that come with the service, in brief, by name."""
        return await self._drive(_core.presets("profiles", ExampleSummary, self._retries))

    async def example(self, name: str) -> ModelProfile:
        """An example profile that comes with the service.

        Raises:
            NotFoundError: there is none of this name.
        """
        return await self._drive(_core.example(name, self._retries))

    async def ready(self) -> bool:
        """Whether the service is there and can take work."""
        return await self._drive(_core.ready())

    async def _pages(self, kind: JobKind[C, A], states: Sequence[str], page_size: int) -> AsyncIterator[JobSummary]:
        token = None
        while True:
            page = await self._drive(_jobs.list_page(kind, token, states, page_size, self._retries))
            for summary in page.jobs:
                yield summary
            token = page.next_page_token
            if token is None:
                return

    async def _drive(self, conversation: _core.Conversation[R]) -> R:
        try:
            step = next(conversation)
            while True:
                step = conversation.send(await self._do(step))
        except StopIteration as end:
            result: R = end.value
            return result

    async def _do(self, step: _core.Call | _core.Pause) -> httpx.Response | ServiceError | None:
        if isinstance(step, _core.Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.request(
                step.method, step.path, content=step.content, headers=step.headers, timeout=self._timeouts.of(step)
            )
        except (httpx.RequestError, httpx.InvalidURL) as error:
            return unreachable(f"{step.method} {self._http.base_url}{step.path}", error)

    async def _events(self, path: str) -> AsyncIterator[ProgressEvent]:
        reader, following = EventReader(), Following(self._retries)
        while True:
            try:
                async with self._http.stream(
                    "GET", path, headers=reader.headers, timeout=self._timeouts.of_events()
                ) as response:
                    if response.status_code != httpx.codes.OK:
                        await response.aread()
                    if following.ended(response):
                        return
                    async for line in response.aiter_lines():
                        event = reader.feed(line)
                        if event is not None:
                            following.went_on()
                            yield event
                        if reader.finished:
                            return
            except httpx.RequestError as error:
                following.broke(unreachable(f"GET {self._http.base_url}{path}", error))
            reader.broken()
            await asyncio.sleep(following.pause_s())
