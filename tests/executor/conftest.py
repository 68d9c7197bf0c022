"""Workers that live as long as the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.pool import Pool

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Processes that run a function on several ranks."""
    from harness.pool import Pool

    workers = Pool()
    yield workers
    workers.close()
