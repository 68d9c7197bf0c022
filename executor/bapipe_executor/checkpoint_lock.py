"""One run at a time saves in a folder: two would take each other's checkpoints for their own."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bapipe.errors import Fault, InvalidInputError

LOCK_FILE = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder, and holds it until the block or the process ends.

    Raises:
        InvalidInputError: another run holds it.
        OSError: it cannot be made, or not be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with Path(folder, LOCK_FILE).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            detail = f"another run saves its checkpoints in {folder}; name another folder, or wait until it has ended"
            raise InvalidInputError([Fault("in_use", detail, "/checkpoint")]) from None
        except OSError:  # a file system without locks
            pass
        yield
