"""The kinds of work that a job can be, each from the request's JSON to how the job ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from bapipe.child import CutShort, Limits
from bapipe.errors import BaPipeError, Fault, InvalidInputError, TimeLimitError
from bapipe.faults import parse, parse_json
from bapipe.isolation import OnCutShort
from bapipe.outcome import OnProgress
from bapipe.plan import Plan
from bapipe.planner import Progress as SearchProgress
from bapipe.problem import PlanRequest
from bapipe.replays import Replay, emulation_json, replay_isolated, simulation_json
from bapipe_api.records import INTERNAL, Ending, Progress, cancelled, problem_json
from bapipe_api.states import State, state_of

log = logging.getLogger(__name__)


class Watch(Protocol):
    """What work is told and asked while it is done."""

    def must_stop(self) -> bool:
        """Whether the work is to end with what it has."""

    def report(self, progress: Progress) -> None:
        """Takes how far the work is. Returns at once."""


Work = Callable[[str, Watch], Ending]


class Solve(Protocol):
    """Searches a plan until it is found, the time is up, or `should_stop()`: `bapipe.planner.plan_isolated`."""

    def __call__(
        self,
        request: PlanRequest,
        *,
        on_progress: OnProgress,
        should_stop: Callable[[], bool],
        on_cut_short: OnCutShort,
    ) -> Plan: ...


@dataclass(frozen=True)
class Tasks:
    """What is done for the jobs of each kind; `solve` None: the search, in a process of its own."""

    solve: Solve | None = None
    simulate: Replay = simulation_json
    emulate: Replay = emulation_json


class WorkLostError(Exception):
    """The process that worked was ended from outside, or crashed. `result`: what it had found, as JSON."""

    def __init__(self, result: str | None) -> None:
        super().__init__("the process that worked has ended")
        self.result = result


@dataclass(frozen=True)
class PlanWork:
    """Searches plans with `solve`."""

    solve: Solve

    def __call__(self, request_json: str, watch: Watch) -> Ending:
        """How the search of the plan that `request_json` asks for ends.

        Raises:
            WorkLostError: its process ended before it did.
        """
        cuts: list[CutShort] = []
        known: list[Progress] = []

        def note(progress: SearchProgress) -> None:
            known[:] = [_progress(progress)]
            watch.report(known[0])

        try:
            request = parse(PlanRequest, parse_json(request_json))
            plan = self.solve(request, on_progress=note, should_stop=watch.must_stop, on_cut_short=cuts.append)
        except InvalidInputError as error:
            return Ending(State.FAILED, None, problem_json(HTTPStatus.UNPROCESSABLE_ENTITY, *error.faults))
        except TimeLimitError as error:
            return self._without_plan(error, cuts)
        except Exception as error:
            if _cause(cuts) == "died":
                raise WorkLostError(None) from None
            log.exception("the search failed")
            return Ending(State.FAILED, None, problem_json(HTTPStatus.INTERNAL_SERVER_ERROR, _failure(error, cuts)))
        if _cause(cuts) == "died":
            raise WorkLostError(plan.model_dump_json())
        return _ending(plan, cuts)

    def _without_plan(self, error: TimeLimitError, cuts: list[CutShort]) -> Ending:
        if _cause(cuts) == "stopped":
            return cancelled()
        fault = Fault("time_limit", str(error), "/time_limit_s")
        return Ending(State.TIMED_OUT, None, problem_json(HTTPStatus.GATEWAY_TIMEOUT, fault))


def _ending(plan: Plan, cuts: list[CutShort]) -> Ending:
    state = state_of(plan, cancelled=_cause(cuts) == "stopped")
    document, progress = plan.model_dump_json(), _last_progress(plan)
    if state == State.CANCELLED:
        return cancelled(document, progress)
    error = None
    if state == State.TIMED_OUT:
        error = problem_json(HTTPStatus.GATEWAY_TIMEOUT, _why_not_proven(plan, cuts))
    return Ending(state, document, error, progress)


def _cause(cuts: list[CutShort]) -> str:
    return cuts[-1].cause if cuts else ""


def _why_not_proven(plan: Plan, cuts: list[CutShort]) -> Fault:
    """Why the plan is not as good as was asked, though nobody stopped the search."""
    if _cause(cuts) in ("memory_limit", "failed"):
        code = "memory_limit" if _cause(cuts) == "memory_limit" else "search_failed"
        return Fault(code, f"{_brief(cuts[-1].reason)}; the plan is the best found by then")
    detail = f"the time limit of {plan.request.time_limit_s:g} s came before the proof; the plan is the best found"
    return Fault("time_limit", detail, "/time_limit_s")


def _failure(error: Exception, cuts: list[CutShort]) -> Fault:
    """A sentence of BaPipe's own, such as that memory ran out, is for the client; anything longer is a traceback."""
    said = str(error)
    if not isinstance(error, BaPipeError) or "\n" in said.strip():
        return INTERNAL
    return Fault("memory_limit" if _cause(cuts) == "memory_limit" else "search_failed", said)


def _brief(reason: str) -> str:
    """Of a traceback, nothing: it is for the log."""
    return reason if "\n" not in reason.strip() else "the search met an error of its own"


def _progress(search: SearchProgress) -> Progress:
    return Progress(search.phase, search.incumbent_s, search.lower_bound_s, search.gap)


def _last_progress(plan: Plan) -> Progress:
    """The plan's own figures, in seconds of one mini-batch as the search has them."""
    bound_s = plan.proof.lower_bound_s
    if plan.prediction is None or plan.schedule is None:
        return Progress("done", None, bound_s, plan.proof.gap)
    if plan.request.objective != "bottleneck":
        return Progress("done", plan.prediction.step_time_s, bound_s, plan.proof.gap)
    times = plan.schedule.num_microbatches
    return Progress(
        "done", plan.prediction.bottleneck_s * times, None if bound_s is None else bound_s * times, plan.proof.gap
    )


@dataclass(frozen=True)
class ReplayWork:
    """Replays plans with `replay` in a process of its own, with a hard wall clock and a memory limit."""

    replay: Replay
    time_limit_s: float
    memory_limit_bytes: int

    def __call__(self, request_json: str, watch: Watch) -> Ending:
        """How the replay of what `request_json` asks for ends.

        Raises:
            WorkLostError: its process ended before it did.
        """
        limits = Limits(time.monotonic() + self.time_limit_s, self.memory_limit_bytes, watch.must_stop)
        try:
            found = replay_isolated(self.replay, request_json, limits)
        except InvalidInputError as error:
            return Ending(State.FAILED, None, problem_json(HTTPStatus.UNPROCESSABLE_ENTITY, *error.faults))
        return self._without_answer(found) if isinstance(found, CutShort) else Ending(State.SUCCEEDED, found)

    def _without_answer(self, cut: CutShort) -> Ending:
        if cut.cause == "died":
            raise WorkLostError(None)
        if cut.cause == "stopped":
            return cancelled()
        if cut.cause == "time_limit":
            detail = f"it did not end within the {self.time_limit_s:g} s that this service allows"
            return Ending(State.TIMED_OUT, None, problem_json(HTTPStatus.GATEWAY_TIMEOUT, Fault("time_limit", detail)))
        if cut.cause == "memory_limit":
            fault = Fault("memory_limit", cut.reason)
        else:
            log.error(cut.reason)
            fault = INTERNAL
        return Ending(State.FAILED, None, problem_json(HTTPStatus.INTERNAL_SERVER_ERROR, fault))
