"""The store by itself, on SQLite and on PostgreSQL: what happens at the same moment, and what is kept."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url, select, text
from sqlalchemy.exc import SQLAlchemyError

from bapipe_api.database import Database
from bapipe_api.kinds import Kind
from bapipe_api.leases import Leases, tell
from bapipe_api.metrics import Metrics
from bapipe_api.migrate import migrate
from bapipe_api.records import Ending, cancelled
from bapipe_api.settings import Keep
from bapipe_api.states import State
from bapipe_api.store import PageTokenError, Store, Submission
from bapipe_api.tables import JobRow
from conftest import ON_POSTGRES

KEEP = 3
AT_ONCE = 8


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = URL.create("sqlite", database=str(tmp_path / "jobs.sqlite3"))
    if request.param == "postgres":
        url = make_url(request.getfixturevalue("postgres").database()).set(drivername="postgresql+psycopg")
    with Database(url) as opened:
        migrate(opened)
        yield opened


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database, max_unfinished=100, max_unfinished_per_owner=100, keep=Keep(KEEP, 2**20))


@pytest.fixture
def leases(database: Database) -> Leases:
    return Leases(database, "worker-1", lease_s=10.0, max_attempts=2, keep=Keep(KEEP, 2**20))


def asked(number: int = 0, *, owner: str = "a", kind: Kind = Kind.PLAN, key: str | None = None) -> Submission:
    return Submission(owner, kind, f'{{"n": {number}}}', f"{kind}-{number}", key, f"body-{number}")


def done(store: Store, leases: Leases, new: Submission, ending: Ending) -> str:
    """The job of `new`, which has ended so."""
    made = store.submit(new).record
    lease = leases.claim(made.id)
    assert lease is not None
    assert leases.finish(lease, ending)
    return made.id


def jobs(database: Database) -> list[JobRow]:
    with database.read() as session:
        found = list(session.scalars(select(JobRow).order_by(JobRow.created_at)))
        session.expunge_all()
        return found


@pytest.mark.parametrize("answered_before", [False, True])
def test_a_key_that_comes_several_times_at_once_is_one_job(
    store: Store, leases: Leases, database: Database, answered_before: bool
) -> None:
    if answered_before:
        done(store, leases, asked(owner="b"), Ending(State.SUCCEEDED, "{}"))
    before = len(jobs(database))
    with ThreadPoolExecutor(AT_ONCE) as threads:
        asks = [threads.submit(store.submit, asked(key="k")) for _ in range(AT_ONCE)]
        looks = [threads.submit(store.answered, asked(key="k")) for _ in range(AT_ONCE)]
    found = {ask.result().record.id for ask in asks} | {got.record.id for look in looks if (got := look.result())}
    assert len(found) == 1
    assert len(jobs(database)) == before + 1


def test_a_cancellation_is_one_whoever_else_asks_for_it(store: Store, leases: Leases) -> None:
    waiting = store.submit(asked()).record.id
    with ThreadPoolExecutor(AT_ONCE) as threads:
        states = list(threads.map(store.cancel, [waiting] * AT_ONCE))
    assert sorted(states, key=str) == [None] * (AT_ONCE - 1) + [State.CANCELLED]
    running = store.submit(asked(1)).record.id
    lease = leases.claim(running)
    assert lease is not None
    assert [store.cancel(running), store.cancel(running)] == [State.CANCELLING, None]
    assert leases.finish(lease, cancelled())
    assert store.cancel(running) is None


def test_only_the_last_ones_are_kept_however_they_end(store: Store, leases: Leases, database: Database) -> None:
    for number in range(2 * KEEP):
        store.cancel(store.submit(asked(number, key=str(number))).record.id)
    assert [row.cache_key for row in jobs(database)] == [f"plan-{number}" for number in range(KEEP, 2 * KEEP)]
    other = done(store, leases, asked(kind=Kind.SIMULATION), Ending(State.SUCCEEDED, "{}"))
    assert len(jobs(database)) == KEEP + 1
    assert store.get(other, "a", Kind.SIMULATION) is not None


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("ending", [Ending(State.FAILED), Ending(State.TIMED_OUT), cancelled()])
def test_what_was_asked_goes_with_the_hope_for_an_answer(
    store: Store, leases: Leases, kind: Kind, ending: Ending
) -> None:
    job = done(store, leases, asked(kind=kind), ending)
    assert store.request_of(job) == ""


def test_a_page_token_is_one_of_this_service_or_refused(store: Store) -> None:
    for number in range(2):
        store.submit(asked(number))
    given = store.list_page("a", Kind.PLAN, size=1).next_token
    assert given is not None
    assert len(store.list_page("a", Kind.PLAN, size=1, token=given).records) == 1
    assert store.list_page("a", Kind.EMULATION, size=1, token=given).records == ()
    assert store.list_page("b", Kind.PLAN, size=1, token=given).records == ()
    places = (
        b"[" * 30_000,
        b"0001-01-01T00:00:00+23:59 " + b"0" * 32,
        b"2026-99-01T00:00:00+00:00 " + b"0" * 32,
        b"2026-01-01T00:00:00+00:00 a\0b",
        b"2026-01-01T00:00:00+00:00 \xed\xa0\x80" + b"0" * 29,
        b"2026-01-01T00:00:00+00:00 " + b"0" * 32 + b"\n",
    )
    for token in (*(base64.urlsafe_b64encode(place).decode() for place in places), "", "é", "x", given + "x"):
        with pytest.raises(PageTokenError):
            store.list_page("a", Kind.PLAN, size=1, token=token)


def test_jobs_that_are_taken_back_are_told_one_by_one(
    store: Store, leases: Leases, caplog: pytest.LogCaptureFixture
) -> None:
    for number, kind in enumerate(Kind):
        store.submit(asked(number, kind=kind))
        assert leases.claim_next() is not None
    metrics = Metrics()
    with caplog.at_level(logging.WARNING):
        tell(leases.take_back_all(), "lost", metrics)
    assert {record.job_id for record in caplog.records} == {row.id for row in jobs(leases._database)}
    for kind in Kind:
        assert metrics.registry.get_sample_value("bapipe_jobs_total", {"kind": kind, "state": "queued"}) == 1


def test_an_error_of_the_store_does_not_say_what_was_asked(database: Database) -> None:
    with pytest.raises(SQLAlchemyError) as caught, database.write() as session:
        session.execute(text("SELECT nothing FROM nowhere WHERE secret = :profile"), {"profile": "a secret network"})
    assert "a secret network" not in str(caught.value)
