"""What the service asks of whatever runs its jobs. The job's row is the one truth: an engine is told where to look."""

from __future__ import annotations

from typing import Protocol

from bapipe_api.records import Record


class JobEngine(Protocol):
    """Runs the jobs in the store, here or elsewhere. Methods but `stop` block; all are thread-safe.

    A job that was submitted, and that nobody announced, is found all the same: later.
    """

    def start(self) -> None:
        """Begins with what the store holds."""

    def announce(self, job_id: str) -> None:
        """Says that this job waits. Does not raise: a job that cannot be announced now is found later."""

    def stop(self) -> None:
        """Lets no job begin. Returns at once, and may be called from a signal handler."""

    def close(self) -> None:
        """Stops, and returns when no job runs in this process any more."""

    def overlay(self, record: Record) -> Record:
        """The record with what this process knows of the job and could not store yet."""

    def fault(self) -> str | None:
        """Why no job would be run now; None when they are run."""
