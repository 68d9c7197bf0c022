"""What a rank says of an exception that ends it."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import torch

import bapipe
from bapipe.errors import BaPipeError, CheckpointError, DivergedError, InvalidInputError

LASTING = (InvalidInputError, CheckpointError, DivergedError)
"""What would fail the same way if it were tried again."""

MESSAGE_LENGTH = 2000
"""Lines of several ranks share a pipe, which keeps them apart only while they are short."""

_TORCH = Path(torch.__file__).parent
_COMMUNICATION = str(_TORCH / "distributed")
_OTHERS = (
    *(str(folder) for folder in (_TORCH, Path(bapipe.__file__).parent, Path(__file__).parent)),
    sysconfig.get_paths()["stdlib"],
    sysconfig.get_paths()["purelib"],
    "<",
)
"""Code that is not the user's, by the start of its file's name: ours, libraries', and what is in no file."""


def told(error: BaseException) -> dict[str, Any]:
    """The values of the event `failed`: what, and where in the user's code; whether it is `lasting`, or only says that
    another rank is `lost`.
    """
    error = _cause(error)
    places = () if isinstance(error, BaPipeError) else _places(error)
    where = f" ({', '.join(places)})" if places else ""
    return {
        "error": type(error).__name__,
        "message": f"{str(error)[:MESSAGE_LENGTH]}{where}",
        "lasting": isinstance(error, LASTING),
        "lost": _of_another_rank(error),
    }


def print_defect(error: BaseException) -> None:
    """The traceback of what is neither the user's nor another rank's fault: it is for whoever mends BaPipe."""
    error = _cause(error)
    if not isinstance(error, BaPipeError) and not _places(error) and not _of_another_rank(error):
        traceback.print_exception(error, file=sys.stderr)


def _cause(error: BaseException) -> BaseException:
    """What was raised first: torch wraps what a stage raises."""
    return error if isinstance(error, BaPipeError) or error.__cause__ is None else _cause(error.__cause__)


def _places(error: BaseException) -> tuple[str, ...]:
    """Which layer an exception came from, or the loss, as its notes say; and which line of the user's."""
    line = user_place(error)
    return (*getattr(error, "__notes__", ()), *([line] if line else []))


def _of_another_rank(error: BaseException) -> bool:
    """Whether it came up in communication, as it does where another rank is gone."""
    frames = traceback.extract_tb(error.__traceback__)
    return not _places(error) and bool(frames) and frames[-1].filename.startswith(_COMMUNICATION)


def reason_of(error: BaseException) -> str:
    """An exception of the user's code in a line, and the line of that code where it came from."""
    place = user_place(error)
    return f"{type(error).__name__}: {error}" + (f" ({place})" if place else "")


def user_place(error: BaseException) -> str | None:
    """Where in the user's code an exception came from: the innermost line that is neither ours nor a library's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OTHERS):
            return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"
    return None
