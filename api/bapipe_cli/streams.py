"""The standard streams, whatever the caller made of them: closed, or in an encoding that lacks most of Unicode."""

from __future__ import annotations

import codecs
import io
import os
import sys

ESCAPE = "bapipe.escape"


def prepare_streams() -> None:
    """Lets everything be printed: what is closed goes nowhere, what cannot be encoded is escaped.

    A descriptor that is closed would be taken by the next file that is opened, which prints would then end up in.
    """
    codecs.register_error(ESCAPE, _escaped)
    for descriptor in range(3):
        _hold(descriptor)
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPE)


def _hold(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one


def _nowhere() -> io.TextIOWrapper:
    return open(os.devnull, "w", encoding="utf-8")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """As JSON writes it, so that JSON which is printed stays the same JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), error.end
