"""A search in a process of its own: solver libraries overrun their limits and ignore a stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bapipe.child import CutShort, Limits, Send, run_in_child
from bapipe.errors import BaPipeError, SolverDisagreementError
from bapipe.formulations.protocol import Formulation
from bapipe.outcome import OnProgress, Outcome, Progress
from bapipe.problem import PlanRequest
from bapipe.search import Search

NOTHING = Outcome(best=None, lower_bound_s=None, exhausted=False, complete=False, baselines=())
"""What is known before the first report."""

OnCutShort = Callable[[CutShort], None]


def search_in_child(
    request: PlanRequest,
    started_s: float,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
    formulation: Formulation | None = None,
    memory_limit_bytes: int | None = None,
    on_cut_short: OnCutShort = lambda cut: None,
    *,
    solver_log: bool = False,
) -> Outcome:
    """The outcome of a search begun at `started_s` (monotonic clock), or as much of it as was reported in time.

    Raises:
        BaPipeError: the child died before it had found anything.
        SolverDisagreementError: two methods do not agree; whatever was found before does not count.
    """
    last = NOTHING

    def note(progress: Progress) -> None:
        nonlocal last
        last = progress.outcome
        on_progress(progress)

    deadline_s = started_s + request.time_limit_s
    work = partial(_search, request, deadline_s, formulation, solver_log)
    limits = Limits(deadline_s, memory_limit_bytes, should_stop)
    found = run_in_child(work, limits, on_report=note, name="the search")
    if isinstance(found, SolverDisagreementError):
        raise found
    if isinstance(found, Outcome):
        return found
    on_cut_short(found)
    return _kept(last, found)


def _search(
    request: PlanRequest, deadline_s: float, formulation: Formulation | None, solver_log: bool, send: Send
) -> Outcome | SolverDisagreementError:
    """What the child does."""
    try:
        return Search(request, deadline_s, send, formulation=formulation, solver_log=solver_log).run()
    except SolverDisagreementError as error:
        return error


def _kept(last: Outcome, cut: CutShort) -> Outcome:
    """What was reported last; an outcome that is proven stays proven."""
    failed = cut.cause not in ("stopped", "time_limit")
    if failed and last.best is None and not last.exhausted:
        raise BaPipeError(cut.reason)
    brief = cut.reason.strip().splitlines()
    reason = brief[0] if len(brief) == 1 else f"{brief[0]} … {brief[-1]}"
    return replace(last, explanation=(*last.explanation, reason))
