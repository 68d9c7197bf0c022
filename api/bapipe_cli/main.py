"""The way into `bapipe`: what must hold before anything else is imported, which takes a moment."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from bapipe_cli.exits import ExitCode
from bapipe_cli.streams import prepare_streams


def main() -> None:
    """The console script."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    prepare_streams()
    import typer

    from bapipe_cli.app import app
    from bapipe_cli.guard import user_faults

    signal.signal(signal.SIGINT, before)
    try:
        with user_faults():
            app()
    except typer.Exit as ended:
        _end(ended.exit_code)
    except SystemExit as ended:
        _end(ended.code)


def _end(code: str | int | None) -> NoReturn:
    """Ends the process. An interrupt amid an `exec`, of which imports are full, is remembered by the interpreter, which
    would kill itself on its way out though it was handled: so after one there is no way out but this.
    """
    if code == ExitCode.INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(ExitCode.INTERRUPTED)
    sys.exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """Nothing has begun: there is nothing to stop, and an import that is interrupted would print its traceback."""
    del number, frame
    os.write(2, b"bapipe: interrupted\n")
    os._exit(ExitCode.INTERRUPTED)
