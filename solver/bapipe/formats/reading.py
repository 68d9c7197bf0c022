"""Text from a file, within limits, with a fault that says what is wrong when there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from bapipe.errors import Fault, FormatError

MAX_FILE_BYTES = 64 * 2**20


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of the file at `path`, a byte order mark dropped.

    Raises:
        FormatError: no such file, a directory, unreadable, over `MAX_FILE_BYTES`, or not UTF-8.
    """
    try:
        with Path(path).open("rb") as file:
            data = read_stream(file, str(path))
    except FormatError:
        raise
    except (OSError, ValueError) as error:
        raise FormatError([_unreadable(path, error)]) from None
    return decode(data, str(path))


def read_stream(stream: BinaryIO, what: str) -> bytes:
    """All of `stream`.

    Raises:
        FormatError: it cannot be read, or is over `MAX_FILE_BYTES`.
    """
    try:
        data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FormatError([_unreadable(what, error)]) from None
    if len(data) > MAX_FILE_BYTES:
        detail = f"{what} is larger than {MAX_FILE_BYTES // 2**20} MiB, the most that is read; is it the right file?"
        raise FormatError([Fault("file_too_large", detail)])
    return data


def decode(data: bytes, what: str) -> str:
    """UTF-8 `data` as text, a byte order mark dropped.

    Raises:
        FormatError: `not_utf8` with the offset of the first bad byte; `empty_file` when there is nothing but space.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = f"{what} is not UTF-8 text: bad byte at offset {error.start}"
        raise FormatError([Fault("not_utf8", detail)]) from None
    if not text.strip():
        raise FormatError([Fault("empty_file", f"{what} is empty")])
    return text


def _unreadable(path: str | os.PathLike[str], error: OSError | ValueError) -> Fault:
    if isinstance(error, FileNotFoundError):
        return Fault("no_such_file", f"there is no file {str(path)!r}")
    if isinstance(error, IsADirectoryError):
        return Fault("is_a_directory", f"{str(path)!r} is a directory; name a file in it")
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return Fault("unreadable_file", f"{str(path)!r} cannot be read: {reason}")
