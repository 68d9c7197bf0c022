"""The way into `bapipe`: what must hold before anything else is imported, which takes a moment."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

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
        sys.exit(ended.exit_code)


def _leave(number: int, frame: FrameType | None) -> None:
    """Nothing has begun: there is nothing to stop, and an import that is interrupted would print its traceback."""
    del number, frame
    os.write(2, b"bapipe: interrupted\n")
    os._exit(ExitCode.INTERRUPTED)
