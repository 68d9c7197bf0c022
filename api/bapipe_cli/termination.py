"""A request to end, of a scheduler or a terminal that closes, ends a command as Ctrl-C does: what it started first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import typer

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Terminated(SystemExit):
    """Raised wherever the command is."""


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP unwind the command, unless it was started to ignore them; the exit code is 128 more
    than the signal's number.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        yield
    except _Terminated as ended:
        typer.echo(f"bapipe: ended by {signal.Signals(ended.args[0] - 128).name}", err=True)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise _Terminated(128 + number)
