"""The blocking client."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any, Self, TypeVar

import httpx

from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_client import _core
from bapipe_client._retries import RetryPolicy
from bapipe_client.errors import ServiceError, ServiceTimeoutError, ServiceUnreachableError
from bapipe_client.models import PlanResource, SimulationResult

DEFAULT_URL = "http://127.0.0.1:8000"
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)
"""httpx's errors that are raised before anything is sent."""

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
        timeout: float | httpx.Timeout = 30.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`timeout`: seconds to connect, to send, and to wait for an answer; a search has its time limit on top.

        `retries`: how often a call is repeated when the service is busy (`Retry-After` is honoured) or, if that
        is safe, not reached. `transport`: httpx's, for proxies and tests.
        """
        self._timeout = timeout if isinstance(timeout, httpx.Timeout) else httpx.Timeout(timeout)
        self._retries = RetryPolicy(most=retries)
        agent = {"User-Agent": f"bapipe-client/{version('bapipe')}", "Accept": "application/json"}
        try:
            self._http = httpx.Client(base_url=base_url, timeout=self._timeout, headers=agent, transport=transport)
        except httpx.InvalidURL as error:
            raise _unreachable(base_url, error) from None

    def close(self) -> None:
        """Closes the connections. The client cannot be used any more."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def plan(self, request: PlanRequest | None = None, /, **fields: Any) -> Plan:
        """The best plan for `request`, or for the request with these `fields`.

        Blocks until the search ends: at the latest when its time limit is over, with the best plan found by then; on a
        busy service it may have to wait for its turn first. An infeasible problem is an answer too (`plan.status`).

        Raises:
            InvalidInputError: the request is wrong; it holds every fault.
            TimeLimitError: no plan was found in time.
            ServiceError: there is no plan for a reason that is not the request's.
        """
        if request is not None and fields:
            raise TypeError("give a request, or the fields of one, not both")
        return self._drive(_core.plan(request or parse(PlanRequest, fields), self._retries))

    def get_plan(self, plan_id: str) -> PlanResource:
        """A plan that was asked for before, by its id.

        Raises:
            NotFoundError: the service has no such plan.
        """
        return self._drive(_core.get_plan(plan_id, self._retries))

    def simulate(self, plan: Plan) -> SimulationResult:
        """What `plan` costs, event by event.

        Raises:
            InvalidInputError: the plan is not legal for its problem; it holds every fault.
        """
        return self._drive(_core.simulate(plan, self._retries))

    def ready(self) -> bool:
        """Whether the service is there and can take work."""
        return self._drive(_core.ready())

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
        timeout = self._timeout.as_dict()
        if timeout["read"] is not None:
            timeout["read"] += step.wait_s
        try:
            return self._http.request(
                step.method, step.path, content=step.content, headers=step.headers, timeout=httpx.Timeout(**timeout)
            )
        except (httpx.RequestError, httpx.InvalidURL) as error:
            return _unreachable(f"{step.method} {self._http.base_url}{step.path}", error)


def _unreachable(call: str, error: Exception) -> ServiceUnreachableError:
    kind = ServiceTimeoutError if isinstance(error, httpx.TimeoutException) else ServiceUnreachableError
    message = f"{call}: {error or type(error).__name__}"
    return kind(message, may_have_arrived=not isinstance(error, UNSENT))
