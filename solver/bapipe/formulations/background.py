"""Calls of solver libraries that neither return in time nor can be asked how far they are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from bapipe.formulations.base import Stop

T = TypeVar("T")

POLL_S = 0.02


def watched(work: Callable[[], T], attend: Callable[[], None], stop: Stop, interrupt: Callable[[], None]) -> T:
    """The result of `work()`, run in a thread; meanwhile `attend()` is called again and again in this one, and once at
    the end. When `stop()` turns true or `attend()` raises, `interrupt()` is to make `work()` return early.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work)
        try:
            while not future.done():
                wait([future], timeout=POLL_S)
                attend()
                if stop():
                    interrupt()
            attend()
        except BaseException:
            while not future.done():
                interrupt()
                wait([future], timeout=POLL_S)
            raise
        return future.result()
