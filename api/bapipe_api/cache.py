"""What makes two requests the same: the request in canonical form, and the solver that would answer it."""

from __future__ import annotations

import hashlib
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
