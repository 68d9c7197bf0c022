"""The engine without anything to install: the jobs are run by the service itself, in child processes."""

from __future__ import annotations

import logging
import threading

from sqlalchemy.exc import SQLAlchemyError

from bapipe.child import warm_up
from bapipe.replays import MODULES
from bapipe_api.database import brief
from bapipe_api.leases import Lease, Leases, tell
from bapipe_api.metrics import Metrics
from bapipe_api.records import Record
from bapipe_api.runner import Runner

LOOK_EVERY_S = 5.0
"""How long a job that nobody announced may wait although there is a place for it."""

log = logging.getLogger(__name__)


class EmbeddedEngine:
    """Runs at most `slots` jobs at a time. The store must be this process's alone."""

    def __init__(self, leases: Leases, runner: Runner, metrics: Metrics, *, slots: int) -> None:
        self._leases = leases
        self._runner = runner
        self._metrics = metrics
        self._announced = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._serve, name=f"slot-{slot}") for slot in range(slots)]

    def start(self) -> None:
        """What was running when an earlier process ended is queued again."""
        warm_up(*MODULES)
        tell(self._leases.take_back_all(), "the service has ended before it did", self._metrics)
        self._runner.start()
        for thread in self._threads:
            thread.start()

    def announce(self, job_id: str) -> None:
        del job_id  # the store knows which one is next
        self._announced.release()

    def stop(self) -> None:
        self._runner.stop()
        self._announced.release(len(self._threads))

    def close(self) -> None:
        self.stop()
        for thread in self._threads:
            thread.join()
        self._runner.close()

    def overlay(self, record: Record) -> Record:
        return self._runner.overlay(record)

    def fault(self) -> str | None:
        if not all(thread.is_alive() for thread in self._threads):
            return "a thread that runs jobs has ended"
        return self._runner.fault()

    def _serve(self) -> None:
        """Runs what waits, one job after the other, until the service stops."""
        while not self._runner.stopping:
            lease = self._claim()
            if lease is None:
                self._announced.acquire(timeout=LOOK_EVERY_S)
            else:
                self._runner.run(lease)

    def _claim(self) -> Lease | None:
        try:
            return self._leases.claim_next()
        except SQLAlchemyError as error:
            log.warning("no job can be begun, the store does not answer: %s", brief(error))
            return None
