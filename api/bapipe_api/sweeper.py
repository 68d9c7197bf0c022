"""Finds the jobs that nobody works on any more, and has them done: a thread of every process of the service."""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy.exc import SQLAlchemyError

from bapipe_api.database import brief
from bapipe_api.leases import Leases, tell
from bapipe_api.metrics import Metrics
from bapipe_api.queue import Queue

FORGET_LEASES = 30
"""Workers that were not heard of for so many leases are forgotten."""

log = logging.getLogger(__name__)


class Sweeper:
    """Sweeps every `every_s`. After the store did not answer, everybody gets `lease_s` to be heard of first."""

    def __init__(self, leases: Leases, queue: Queue, metrics: Metrics, *, every_s: float, lease_s: float) -> None:
        self._leases = leases
        self._queue = queue
        self._metrics = metrics
        self._every_s = every_s
        self._lease_s = lease_s
        self._not_before_s = time.monotonic() + lease_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                self._sweep()
            except SQLAlchemyError as error:
                log.warning("the store does not answer: %s", brief(error))
                self._not_before_s = time.monotonic() + self._lease_s
            except Exception:
                log.exception("sweeping failed; it goes on")

    def _sweep(self) -> None:
        taken = self._leases.sweep() if time.monotonic() >= self._not_before_s else []
        tell(taken, "its worker was not heard of in time", self._metrics)
        for job_id in self._queue.forgotten():
            self._queue.announce(job_id)
        self._leases.forget_workers(FORGET_LEASES * self._lease_s)
