"""What the engine holds of a job that nobody wants any more."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from bapipe.errors import TimeLimitError
from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_api.jobs import BusyError, JobEngine
from bapipe_api.store import Store


def test_a_job_that_is_cancelled_in_the_queue_leaves_no_request_behind(
    tmp_path: Path, request_json: dict[str, Any]
) -> None:
    end = Event()

    def solve(request: PlanRequest, *, should_stop: Callable[[], bool]) -> Plan:
        end.wait(60)
        raise TimeLimitError("in vain")

    with Store(f"sqlite:///{tmp_path}/plans.sqlite3", keep_plans=10) as store:
        engine = JobEngine(store, solve, max_concurrent=1, max_queued=1)
        engine.submit(parse(PlanRequest, request_json))
        held = []
        for _ in range(3):
            job = engine.submit(parse(PlanRequest, request_json))
            held.append(weakref.ref(job.request))
            with pytest.raises(BusyError):
                engine.submit(job.request)
            engine.cancel(job)
            assert job.done.result(timeout=0).state == "cancelled"
            del job
        gc.collect()
        assert [reference() for reference in held] == [None] * 3
        end.set()
        engine.close()
