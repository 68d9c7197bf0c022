"""The store's tables: what the migrations make is what the code says, on both databases, from the wheel as well."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from bapipe_api import Settings
from bapipe_api.database import Database, StoreInUseError, UnusableStoreError, sole_user
from bapipe_api.migrate import current, head, migrate
from bapipe_api.tables import Base


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgres"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    sqlite = f"sqlite:///{tmp_path}/folder/plans.sqlite3"
    url = sqlite if request.param == "sqlite" else request.getfixturevalue("postgres").database()
    with Database(Settings(database_url=url).url) as database:
        yield database


def differences(database: Database) -> list[Any]:
    """What the migrated database and the tables of the code do not have in common; the queue's own left out."""

    def ours(thing: Any, name: str | None, kind: str, reflected: bool, other: Any) -> bool:
        return not (kind == "table" and (name or "").startswith("procrastinate"))

    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": ours, "compare_type": True})
        return list(compare_metadata(context, Base.metadata))


def test_the_migrations_make_the_tables_of_the_code(database: Database) -> None:
    migrate(database)
    assert current(database) == head()
    assert differences(database) == []


def test_migrating_again_changes_nothing(database: Database) -> None:
    migrate(database)
    migrate(database)
    assert current(database) == head()


OLD_ROWS = (
    "INSERT INTO results (id, document) VALUES ('r', '{\"status\": 1}')",
    "INSERT INTO jobs (id, kind, owner, state, created_at, finished_at, request, result_id, attempt, last_event) "
    "VALUES ('ended', 'plan', '', 'succeeded', '2026-01-01', '2026-01-02', '', 'r', 1, 3), "
    "('failed', 'plan', '', 'failed', '2026-01-01', '2026-01-02', '{}', NULL, 1, 3), "
    "('waits', 'plan', '', 'queued', '2026-01-01', NULL, '{}', NULL, 0, 1)",
    "INSERT INTO events (job_id, sequence, data) VALUES ('ended', 3, '{}')",
)


def test_an_upgrade_keeps_what_is_there(database: Database) -> None:
    migrate(database, "0001")
    with database.writer.begin() as connection:
        for row in OLD_ROWS:
            connection.exec_driver_sql(row)
    migrate(database)
    with database.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT id, state, result_id, kept_bytes FROM jobs ORDER BY id").fetchall()
        events = connection.exec_driver_sql("SELECT job_id FROM events").fetchall()
    assert [tuple(row) for row in rows] == [
        ("ended", "succeeded", "r", 13),
        ("failed", "failed", None, 2),
        ("waits", "queued", None, 0),
    ]
    assert [tuple(row) for row in events] == [("ended",)]
    assert differences(database) == []


def test_many_may_start_at_once(database: Database) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: migrate(database), range(4)))
    assert current(database) == head()


def test_a_store_of_a_later_release_is_left_alone(database: Database) -> None:
    migrate(database)
    with database.writer.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(UnusableStoreError, match="9999 is of a later release"):
        migrate(database)


def test_the_tables_of_another_program_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE jobs (id TEXT)")
    with Database(Settings(database_url=f"sqlite:///{path}").url) as database:
        with pytest.raises(UnusableStoreError, match="another program"):
            migrate(database)
        assert current(database) is None


def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    url = Settings(database_url="postgresql://me:secret@127.0.0.1:1/bapipe").url
    with Database(url) as database, pytest.raises(UnusableStoreError) as caught:
        migrate(database)
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)


def serves(database: Database) -> bool:
    with sole_user(database):
        return True


def test_one_process_at_a_time_serves_from_a_file(tmp_path: Path) -> None:
    url = Settings(database_url=f"sqlite:///{tmp_path}/plans.sqlite3").url
    with Database(url) as one, Database(url) as two:
        with sole_user(one), pytest.raises(StoreInUseError):
            serves(two)
        assert serves(two)
