"""Streams of events where something is not as it should be."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from bapipe_api.events import event_stream
from bapipe_api.records import Event
from bapipe_api.watching import Watcher
from serving.asking import SUBJECTS, Subject
from serving.following import events


class Failing:
    """A store that does not answer."""

    def newest_event(self, job_id: str) -> Event | None:
        raise OperationalError("SELECT 1", {}, ConnectionRefusedError("refused"))


def test_a_stream_ends_when_the_store_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def sent() -> list[str]:
        store = Failing()
        return [part async for part in event_stream(store, Watcher(store), "j", 0)]  # type: ignore[arg-type]

    assert asyncio.run(sent()) == ["retry: 2000\n\n"]
    assert [(record.message.partition(",")[0], record.job_id) for record in caplog.records] == [("events end", "j")]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.kind)
def test_what_is_no_event_of_the_job_says_nothing(http: httpx.Client, subject: Subject) -> None:
    """The client may have it of another job, or of a store that was put back to a backup."""
    job = http.post(subject.path, json=subject.asked()).raise_for_status()
    last = events(http, job.headers["location"])[-1]
    for known in ("999", str(last[0] + 1), "-1", "x"):
        assert events(http, job.headers["location"], last=known) == [last]
    assert events(http, job.headers["location"], last=str(last[0])) == []
