"""A search in a process of its own, with a hard wall clock: solver libraries overrun their limits and ignore a stop.

The child sends each incumbent as the stages of its draft; the parent simulates it again, so what it returns does not
depend on the child being alive.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess

from bapipe.assembly import Assembler, Draft
from bapipe.candidates import Candidate
from bapipe.errors import BaPipeError
from bapipe.formulations.base import Formulation
from bapipe.plan import Baseline
from bapipe.problem import PlanRequest
from bapipe.replay import AllReduce
from bapipe.search import OnProgress, Outcome, Progress, Search

POLL_S = 0.05
GRACE_S = 0.5
"""What a search gets beyond its time limit to come to an end by itself."""

START_S = 30.0
"""What a child may take to start, imports included, before it counts as dead."""


@dataclass(frozen=True)
class _Stages:
    """A draft as it travels."""

    candidate: Candidate
    layers: tuple[tuple[str, ...], ...]
    devices: tuple[tuple[str, ...], ...]
    all_reduce: AllReduce


@dataclass(frozen=True)
class _Report:
    """What the child says: its progress, at the end the outcome, or the traceback that it died of.

    Drafts travel apart, as `stages`.
    """

    progress: Progress | None = None
    stages: _Stages | None = None
    baselines: tuple[Baseline, ...] = ()
    outcome: Outcome | None = None
    failure: str | None = None


def search_in_child(
    request: PlanRequest,
    started_s: float,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
    formulation: Formulation,
) -> Outcome:
    """The outcome of a search begun at `started_s` (monotonic clock), or as much of it as was reported in time.

    Raises:
        BaPipeError: the child died by itself.
    """
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    deadline_s = started_s + request.time_limit_s
    child = context.Process(target=_search, args=(sender, request, deadline_s, formulation), daemon=True)
    _start_server()
    child.start()
    sender.close()
    try:
        return _Listener(request, receiver, on_progress).listen(child, deadline_s, should_stop)
    finally:
        child.kill()
        child.join()
        receiver.close()


@dataclass
class _Listener:
    request: PlanRequest
    receiver: Connection
    on_progress: OnProgress
    last: _Report = _Report()
    started: bool = False

    def listen(self, child: BaseProcess, deadline_s: float, should_stop: Callable[[], bool]) -> Outcome:
        give_up_s = time.monotonic() + START_S
        while time.monotonic() < give_up_s and not should_stop():
            if not self.receiver.poll(POLL_S):
                continue
            try:
                report: _Report = self.receiver.recv()
            except EOFError:
                child.join()
                raise BaPipeError(f"the search process died (exit code {child.exitcode})") from None
            if report.failure is not None:
                raise BaPipeError(f"the search process failed:\n{report.failure}")
            if report.outcome is not None:
                return replace(report.outcome, best=self._draft(report.stages))
            give_up_s = max(deadline_s, time.monotonic()) + GRACE_S if not self.started else give_up_s
            self._note(report)
        return self._cut_short()

    def _note(self, report: _Report) -> None:
        self.started = True
        self.last = replace(
            report,
            stages=report.stages or self.last.stages,
            baselines=report.baselines or self.last.baselines,
        )
        if report.progress is not None:
            self.on_progress(report.progress)

    def _cut_short(self) -> Outcome:
        progress = self.last.progress
        return Outcome(
            best=self._draft(self.last.stages),
            lower_bound_s=None if progress is None else progress.lower_bound_s,
            exhausted=False,
            complete=True,
            baselines=self.last.baselines,
            explanation=("the search was stopped before it came to an end",),
        )

    def _draft(self, stages: _Stages | None) -> Draft | None:
        if stages is None:
            return None
        assembler = Assembler(self.request)
        return assembler.draft(stages.candidate, stages.layers, stages.devices, stages.all_reduce)


def _search(sender: Connection, request: PlanRequest, deadline_s: float, formulation: Formulation) -> None:
    """The child. It does not hear the Ctrl-C that its parent hears: what it has found is asked for, not lost."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    search: Search | None = None

    def report(progress: Progress) -> None:
        baselines = () if search is None else search.baselines
        sender.send(_Report(replace(progress, draft=None), _stages(progress.draft), baselines))

    try:
        sender.send(_Report())
        search = Search(request, deadline_s, report, formulation=formulation)
        outcome = search.run()
        sender.send(_Report(stages=_stages(outcome.best), outcome=replace(outcome, best=None)))
    except Exception:
        sender.send(_Report(failure=traceback.format_exc()))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _stages(draft: Draft | None) -> _Stages | None:
    if draft is None:
        return None
    return _Stages(draft.candidate, draft.layers, draft.devices, draft.all_reduce)


def _start_server() -> None:
    """Starts the server that children are forked from deaf to Ctrl-C, as its children are from their first moment."""
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        forkserver.ensure_running()
        signal.signal(signal.SIGINT, before)


def _context() -> ForkServerContext:
    """Children are forked from a server that has imported the search and holds nothing else: safe beside threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bapipe.search"])
    return context
