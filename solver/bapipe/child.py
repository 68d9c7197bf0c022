"""Work in a process of its own, with a hard wall clock and a memory limit, that can be ended at any time.

The child sends what it has found whenever that changes, so that nothing depends on its living on. It leads a process
group, so that whatever it starts ends with it.
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
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, TypeVar

POLL_S = 0.05
GRACE_S = 0.5
"""What work gets beyond its time limit to come to an end by itself."""

START_S = 30.0
"""What a child may take to start, imports included, before it counts as dead."""

PR_SET_PDEATHSIG = 1

PRELOADED = ("bapipe.isolation",)
"""What the server that children are forked from imports once for all of them."""

T = TypeVar("T")
Send = Callable[[Any], None]
"""Tells the parent what is known so far; it has to be picklable."""


@dataclass(frozen=True)
class Limits:
    """When work is ended that has not come to its own end: at `deadline_s` (monotonic clock), when its process holds
    more than `memory_bytes`, or when `should_stop()` turns true."""

    deadline_s: float
    memory_bytes: int | None = None
    should_stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class CutShort:
    """Why work did not come to its own end. `died`: its process was ended from outside, or crashed."""

    cause: Literal["stopped", "time_limit", "memory_limit", "died", "failed"]
    reason: str


@dataclass(frozen=True)
class _Report:
    """What is known so far."""

    value: Any


@dataclass(frozen=True)
class _Result:
    """What the work came to."""

    value: Any


@dataclass(frozen=True)
class _Failure:
    """The traceback that work died of."""

    text: str


def run_in_child(
    work: Callable[[Send], T], limits: Limits, *, on_report: Callable[[Any], None] = lambda report: None, name: str
) -> T | CutShort:
    """What `work` returns in a process of its own, or why it was cut short. `name` is what reasons call it.

    `work` and all that it sends and returns have to be picklable.
    """
    context = _context()
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_do, args=(sender, work), daemon=True)
    _start_server()
    child.start()
    sender.close()
    try:
        return _listen(child, receiver, limits, on_report, name)
    finally:
        _end(child)
        receiver.close()


def _listen(
    child: BaseProcess, receiver: Connection, limits: Limits, on_report: Callable[[Any], None], name: str
) -> Any | CutShort:
    """The result, or why there is none."""
    give_up_s = time.monotonic() + START_S
    while time.monotonic() < give_up_s:
        if limits.should_stop():
            return CutShort("stopped", f"{name} was stopped before it came to an end")
        if limits.memory_bytes is not None and _resident_bytes(child) > limits.memory_bytes:
            return CutShort("memory_limit", f"it needs more memory than its limit of {limits.memory_bytes} bytes")
        if not receiver.poll(POLL_S):
            continue
        try:
            message = receiver.recv()
        except (EOFError, OSError):
            child.join()
            return CutShort("died", f"the process of {name} died (exit code {child.exitcode})")
        if isinstance(message, _Result):
            return message.value
        if isinstance(message, _Failure):
            return CutShort("failed", f"{name} failed: {message.text}")
        if isinstance(message, _Report):
            on_report(message.value)
        else:
            give_up_s = max(limits.deadline_s, time.monotonic()) + GRACE_S
    return CutShort("time_limit", f"{name} was stopped before it came to an end")


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


def _do(sender: Connection, work: Callable[[Send], Any]) -> None:
    """The child: sends None when it starts, reports, and at the end the result or a failure.

    What is printed goes to stderr, never into what a command answers. The child does not hear the Ctrl-C that its
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
        sender.send(_Result(work(lambda report: sender.send(_Report(report)))))
    except Exception:
        sender.send(_Failure(traceback.format_exc()))


def _die_with_server() -> None:
    """Has the system kill this process when the server that it was forked from ends, as that does with its own parent:
    work that never lets go of the interpreter's lock would not notice.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def warm_up(*modules: str) -> None:
    """Starts what children are forked from, so that none need wait for its imports, nor for those of `modules`."""
    _context(*modules)
    _start_server(anywhere=True)


def _start_server(*, anywhere: bool = False) -> None:
    """Starts the server that children are forked from deaf to Ctrl-C, as its children are from their first moment."""
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        forkserver.ensure_running()
        signal.signal(signal.SIGINT, before)
    elif anywhere:
        forkserver.ensure_running()


def _context(*modules: str) -> ForkServerContext:
    """Children are forked from a server that has made their imports and holds nothing else: safe beside threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *modules])
    return context
