"""The engine on PostgreSQL, as the service has it: jobs are announced, and any worker on any machine does them."""

from __future__ import annotations

from bapipe_api.leases import Leases
from bapipe_api.queue import Queue
from bapipe_api.records import Record
from bapipe_api.sweeper import Sweeper


class DistributedEngine:
    """Leaves the jobs to workers that are heard of at least every `lease_s`."""

    def __init__(self, leases: Leases, queue: Queue, sweeper: Sweeper, *, lease_s: float) -> None:
        self._leases = leases
        self._queue = queue
        self._sweeper = sweeper
        self._lease_s = lease_s

    def start(self) -> None:
        self._queue.open()
        self._sweeper.start()

    def announce(self, job_id: str) -> None:
        self._queue.announce(job_id)

    def stop(self) -> None:
        """No job runs in this process: there is nothing to stop."""

    def close(self) -> None:
        self._sweeper.close()
        self._queue.close()

    def overlay(self, record: Record) -> Record:
        return record

    def fault(self) -> str | None:
        if self._leases.live_workers(within_s=self._lease_s):
            return None
        return f"no worker was heard of in the last {self._lease_s:g} s; start one with bapipe worker"
