"""A search in a process of its own, with a hard wall clock: solver libraries overrun their limits and ignore a stop.

The child sends all that it has found whenever that changes, so that nothing depends on its living on. It leads a
process group, so that whatever it starts ends with it.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

from bapipe.errors import BaPipeError, SolverDisagreementError
from bapipe.formulations.protocol import Formulation
from bapipe.outcome import OnProgress, Outcome
from bapipe.problem import PlanRequest
from bapipe.search import Search

POLL_S = 0.05
GRACE_S = 0.5
"""What a search gets beyond its time limit to come to an end by itself."""

START_S = 30.0
"""What a child may take to start, imports included, before it counts as dead."""

PR_SET_PDEATHSIG = 1

STOPPED = "the search was stopped before it came to an end"

NOTHING = Outcome(best=None, lower_bound_s=None, exhausted=False, complete=False, baselines=())
"""What is known before the first report."""


@dataclass(frozen=True)
class CutShort:
    """Why a search did not come to its own end. `died`: its process was ended from outside, or crashed."""

    cause: Literal["stopped", "time_limit", "memory_limit", "died", "failed"]
    reason: str


OnCutShort = Callable[[CutShort], None]


@dataclass(frozen=True)
class _Failure:
    """The traceback that a search died of."""

    text: str


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
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    deadline_s = started_s + request.time_limit_s
    child = context.Process(target=_search, args=(sender, request, deadline_s, formulation, solver_log), daemon=True)
    _start_server()
    child.start()
    sender.close()
    try:
        found = _listen(child, receiver, deadline_s, on_progress, should_stop, memory_limit_bytes)
    finally:
        _end(child)
        receiver.close()
    if isinstance(found, Outcome):
        return found
    last, cut = found
    on_cut_short(cut)
    return _kept(last, cut)


def _listen(
    child: BaseProcess,
    receiver: Connection,
    deadline_s: float,
    on_progress: OnProgress,
    should_stop: Callable[[], bool],
    memory_limit_bytes: int | None,
) -> Outcome | tuple[Outcome, CutShort]:
    """The outcome, or what was reported last and why there is no more."""
    last, give_up_s = NOTHING, time.monotonic() + START_S
    while time.monotonic() < give_up_s:
        if should_stop():
            return last, CutShort("stopped", STOPPED)
        if memory_limit_bytes is not None and _resident_bytes(child) > memory_limit_bytes:
            reason = f"it needs more memory than its limit of {memory_limit_bytes} bytes"
            return last, CutShort("memory_limit", reason)
        if not receiver.poll(POLL_S):
            continue
        try:
            report = receiver.recv()
        except (EOFError, OSError):
            child.join()
            return last, CutShort("died", f"the search process died (exit code {child.exitcode})")
        if isinstance(report, SolverDisagreementError):
            raise report
        if isinstance(report, Outcome):
            return report
        if isinstance(report, _Failure):
            return last, CutShort("failed", f"the search failed: {report.text}")
        if report is None:
            give_up_s = max(deadline_s, time.monotonic()) + GRACE_S
        else:
            last = report.outcome
            on_progress(report)
    return last, CutShort("time_limit", STOPPED)


def _kept(last: Outcome, cut: CutShort) -> Outcome:
    """What was reported last; an outcome that is proven stays proven."""
    failed = cut.cause not in ("stopped", "time_limit")
    if failed and last.best is None and not last.exhausted:
        raise BaPipeError(cut.reason)
    brief = cut.reason.strip().splitlines()
    reason = brief[0] if len(brief) == 1 else f"{brief[0]} … {brief[-1]}"
    return replace(last, explanation=(*last.explanation, reason))


def _end(child: BaseProcess) -> None:
    """Kills the child and whatever it has started. Only once it is waited for is its number free for another."""
    if child.pid is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join()


def _resident_bytes(child: BaseProcess) -> int:
    """What the child holds in memory now; 0 where the system does not say."""
    try:
        pages = Path(f"/proc/{child.pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * mmap.PAGESIZE


def _search(
    sender: Connection, request: PlanRequest, deadline_s: float, formulation: Formulation | None, solver_log: bool
) -> None:
    """The child: sends None when it starts, its progress, and at the end the outcome or a failure.

    What a solver prints goes to stderr, never into what a command answers. The child does not hear the Ctrl-C that its
    parent hears: what it has found is asked for, not lost.
    """
    os.setpgid(0, 0)
    _die_with_server()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # stderr may be closed
        os.dup2(2, 1)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        sender.send(None)
        sender.send(Search(request, deadline_s, sender.send, formulation=formulation, solver_log=solver_log).run())
    except SolverDisagreementError as error:
        sender.send(error)
    except Exception:
        sender.send(_Failure(traceback.format_exc()))


def _die_with_server() -> None:
    """Has the system kill this process when the server that it was forked from ends, as that does with its own parent:
    a search that never lets go of the interpreter's lock would not notice.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def warm_up() -> None:
    """Starts what searches are forked from, so that the first one need not wait for its imports."""
    _context()
    _start_server(anywhere=True)


def _start_server(*, anywhere: bool = False) -> None:
    """Starts the server that children are forked from deaf to Ctrl-C, as its children are from their first moment."""
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        forkserver.ensure_running()
        signal.signal(signal.SIGINT, before)
    elif anywhere:
        forkserver.ensure_running()


def _context() -> ForkServerContext:
    """Children are forked from a server that has imported the search and holds nothing else: safe beside threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bapipe.isolation"])
    return context
