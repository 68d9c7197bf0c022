"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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
from bapipe_client.errors import ServiceError
from bapipe_client.job import EmulationJob, Job, PlanJob, SimulationJob
from bapipe_client.models import JobSummary, PlanResource, ProgressEvent, SimulationResult, Validation

R = TypeVar("R")


class Client:
    """A BaPipe service, to be called.

    Example:
        with Client("http://127.0.0.1:8000") as client:
            plan = client.plan(profile=profile, cluster=cluster, batch_size=128)
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        connect_timeout: float = 5.0,
        read_timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`api_key`: of `bapipe keys create`; None: the one in BAPIPE_API_KEY, if any.

        `connect_timeout` and `read_timeout` are in seconds; a job has its own time on top. `retries`: how often a
        call is repeated when the service is busy (`Retry-After` is honoured) or not reached: no job is made twice by
        that. `transport`: httpx's, for proxies and tests.
        """
        self._timeouts = Timeouts(connect_timeout, read_timeout)
        self._retries = RetryPolicy(most=retries)
        self._http = opened(httpx.Client, base_url, api_key, transport)

    def close(self) -> None:
        """Closes the connections. The client cannot be used any more."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def plan(self, request: PlanRequest | None = None, /, *, fresh: bool = False, **fields: Any) -> Plan:
        """The best plan for `request`, or for the request with these `fields`.

        Blocks until the search ends: at the latest when its time limit is over, with the best plan found by then; on a
        busy service it may have to wait for its turn first. An infeasible problem is an answer too (`plan.status`).
        `fresh`: search again though the same was asked before.

        Raises:
            InvalidInputError: the request is wrong; it holds every fault.
            TimeLimitError: no plan was found in time.
            ServiceError: there is no plan for a reason that is not the request's.
        """
        ask = Ask(_core.request_of(request, fields).model_dump_json(), fresh=fresh)
        return self._drive(_jobs.answer(PLANS, ask, self._retries))

    def submit(
        self,
        request: PlanRequest | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        fresh: bool = False,
        **fields: Any,
    ) -> PlanJob:
        """Asks for a plan as `plan` does, and returns at once. The job goes on though this process may end.

        `idempotency_key`: asking again with the same one gives the same job; None: one that nobody else has.

        Raises:
            InvalidInputError: the request is wrong; it holds every fault.
            ServiceError: the service does not take it.
        """
        ask = Ask(_core.request_of(request, fields).model_dump_json(), idempotency_key, fresh)
        return PlanJob(self, PLANS, self._drive(_jobs.submit(PLANS, ask, self._retries)))

    def job(self, plan_id: str) -> PlanJob:
        """The search that was submitted before, by its id.

        Raises:
            NotFoundError: the service has no such plan.
        """
        return PlanJob(self, PLANS, self.get_plan(plan_id))

    def plans(self, *, states: Sequence[str] = (), page_size: int = 100) -> Iterator[JobSummary]:
        """The plans that were asked for, newest first; only those in `states`, if any are given."""
        return self._pages(PLANS, states, page_size)

    def get_plan(self, plan_id: str) -> PlanResource:
        """A plan that was asked for before, by its id.

        Raises:
            NotFoundError: the service has no such plan.
        """
        return self._drive(_jobs.get(PLANS, plan_id, self._retries))

    def export(self, plan_id: str, form: str) -> str:
        """A plan as a file: `json`, `html`, `csv` or `trace`.

        Raises:
            NotFoundError: the service has no such plan.
            InvalidInputError: there is no such format.
            UnexpectedResponseError: there is no plan yet, or none at all.
        """
        return self._drive(_jobs.export(PLANS, plan_id, form, self._retries))

    def simulate(self, plan: Plan) -> SimulationResult:
        """What `plan` costs, event by event. Blocks until it is simulated.

        Raises:
            InvalidInputError: the plan is not legal for its problem; it holds every fault.
            TimeLimitError: the simulation did not end in the time that the service gives.
            ServiceError: there is no answer for another reason.
        """
        return self._drive(_jobs.answer(SIMULATIONS, Ask(plan.model_dump_json()), self._retries))

    def submit_simulation(
        self, plan: Plan, *, idempotency_key: str | None = None, fresh: bool = False
    ) -> SimulationJob:
        """Asks for what `simulate` returns as `submit` asks for a plan.

        Raises:
            InvalidInputError: the plan is not legal for its problem; it holds every fault.
            ServiceError: the service does not take it.
        """
        ask = Ask(plan.model_dump_json(), idempotency_key, fresh)
        return Job(self, SIMULATIONS, self._drive(_jobs.submit(SIMULATIONS, ask, self._retries)))

    def simulation_job(self, simulation_id: str) -> SimulationJob:
        """The simulation that was submitted before, by its id.

        Raises:
            NotFoundError: the service has no such simulation.
        """
        return Job(self, SIMULATIONS, self._drive(_jobs.get(SIMULATIONS, simulation_id, self._retries)))

    def simulations(self, *, states: Sequence[str] = (), page_size: int = 100) -> Iterator[JobSummary]:
        """The simulations that were asked for, as `plans` lists plans."""
        return self._pages(SIMULATIONS, states, page_size)

    def emulate(self, plan: Plan, options: EmulationOptions | None = None) -> EmulationReport:
        """A step of `plan` on its FPGAs, with the faults of `options`. Blocks until it is emulated.

        Raises:
            InvalidInputError: the plan cannot be emulated; it holds every fault.
            TimeLimitError: the emulation did not end in the time that the service gives.
            ServiceError: there is no answer for another reason.
        """
        return self._drive(_jobs.answer(EMULATIONS, Ask(_jobs.emulation(plan, options)), self._retries))

    def submit_emulation(
        self,
        plan: Plan,
        options: EmulationOptions | None = None,
        *,
        idempotency_key: str | None = None,
        fresh: bool = False,
    ) -> EmulationJob:
        """Asks for what `emulate` returns as `submit` asks for a plan.

        Raises:
            InvalidInputError: the plan cannot be emulated; it holds every fault.
            ServiceError: the service does not take it.
        """
        ask = Ask(_jobs.emulation(plan, options), idempotency_key, fresh)
        return Job(self, EMULATIONS, self._drive(_jobs.submit(EMULATIONS, ask, self._retries)))

    def emulation_job(self, emulation_id: str) -> EmulationJob:
        """The emulation that was submitted before, by its id.

        Raises:
            NotFoundError: the service has no such emulation.
        """
        return Job(self, EMULATIONS, self._drive(_jobs.get(EMULATIONS, emulation_id, self._retries)))

    def emulations(self, *, states: Sequence[str] = (), page_size: int = 100) -> Iterator[JobSummary]:
        """The emulations that were asked for, as `plans` lists plans."""
        return self._pages(EMULATIONS, states, page_size)

    def validate(self, request: PlanRequest | None = None, /, **fields: Any) -> Validation:
        """What a plan for `request` would assume.

        Raises:
            InvalidInputError: the service would refuse it; it holds every fault.
        """
        return self._drive(_core.validate(_core.request_of(request, fields), self._retries))

    def import_profile(
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
        return self._drive(_core.import_profile(content, given, self._retries))

    def devices(self) -> dict[str, DeviceKind]:
        """The kinds of devices that come with the service, by name."""
        return self._drive(_core.presets("devices", DeviceKind, self._retries))

    def links(self) -> dict[str, Link]:
        """The links that come with the service, by name."""
        return self._drive(_core.presets("links", Link, self._retries))

    def clusters(self) -> dict[str, Cluster]:
        """The example clusters that come with the service, by name."""
        return self._drive(_core.presets("clusters", Cluster, self._retries))

    def examples(self) -> dict[str, ExampleSummary]:
        """The example profiles that come with the service, in brief, by name."""
        return self._drive(_core.presets("profiles", ExampleSummary, self._retries))

    def example(self, name: str) -> ModelProfile:
        """An example profile that comes with the service.

        Raises:
            NotFoundError: there is none of this name.
        """
        return self._drive(_core.example(name, self._retries))

    def ready(self) -> bool:
        """Whether the service is there and can take work."""
        return self._drive(_core.ready())

    def _pages(self, kind: JobKind[C, A], states: Sequence[str], page_size: int) -> Iterator[JobSummary]:
        token = None
        while True:
            page = self._drive(_jobs.list_page(kind, token, states, page_size, self._retries))
            yield from page.jobs
            token = page.next_page_token
            if token is None:
                return

    def _drive(self, conversation: _core.Conversation[R]) -> R:
        try:
            step = next(conversation)
            while True:
                step = conversation.send(self._do(step))
        except StopIteration as end:
            result: R = end.value
            return result

    def _do(self, step: _core.Call | _core.Pause) -> httpx.Response | ServiceError | None:
        if isinstance(step, _core.Pause):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.request(
                step.method, step.path, content=step.content, headers=step.headers, timeout=self._timeouts.of(step)
            )
        except (httpx.RequestError, httpx.InvalidURL) as error:
            return unreachable(f"{step.method} {self._http.base_url}{step.path}", error)

    def _events(self, path: str) -> Iterator[ProgressEvent]:
        reader, following = EventReader(), Following(self._retries)
        while True:
            try:
                with self._http.stream(
                    "GET", path, headers=reader.headers, timeout=self._timeouts.of_events()
                ) as response:
                    if response.status_code != httpx.codes.OK:
                        response.read()
                    if following.ended(response):
                        return
                    for line in response.iter_lines():
                        event = reader.feed(line)
                        if event is not None:
                            following.went_on()
                            yield event
                        if reader.finished:
                            return
            except httpx.RequestError as error:
                following.broke(unreachable(f"GET {self._http.base_url}{path}", error))
            reader.broken()
            time.sleep(following.pause_s())
