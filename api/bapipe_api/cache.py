"""What makes two requests the same: the request in canonical form, and the solver that would answer it."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from functools import cache
from importlib.metadata import version
from pathlib import Path

import bapipe

SOURCES = "*.py"


@cache
def solver_version() -> str:
    """The release, and a hash of the planner's sources: an edited planner does not answer with what it did before."""
    root = Path(bapipe.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob(SOURCES)):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return f"{version('bapipe')}+{digest.hexdigest()[:16]}"


def cache_key(kind: str, canonical: str) -> str:
    """The hash under which an answer to `canonical`, a request as its type writes it, is found again."""
    return hashlib.sha256(f"{kind}\n{solver_version()}\n{canonical}".encode("utf-8", "surrogatepass")).hexdigest()


class KnownBodies:
    """The cache keys of the bodies that were read last: a body that comes again need not be read to find its answer."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._keys: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._guard = threading.Lock()

    def key_of(self, kind: str, body_hash: str) -> str | None:
        """The cache key of the request in this body, if it was right for this kind of job, and is remembered."""
        with self._guard:
            key = self._keys.get((kind, body_hash))
            if key is not None:
                self._keys.move_to_end((kind, body_hash))
            return key

    def remember(self, kind: str, body_hash: str, key: str) -> None:
        """The request in this body is right for this kind of job, and this is its cache key."""
        with self._guard:
            self._keys[kind, body_hash] = key
            while len(self._keys) > self._most:
                self._keys.popitem(last=False)
