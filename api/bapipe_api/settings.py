"""Every setting of the service, in one place: environment variables `BAPIPE_*`, checked when they are read."""

from __future__ import annotations

import os
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

FORMS = "write sqlite:///path/to/file.sqlite3 or postgresql://user:password@host/database"


class Keep(NamedTuple):
    """How much is kept of what has ended, of each kind of job: so many, and so much of what they asked and found."""

    jobs: int
    bytes: int


def _database_url(url: str) -> str:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError(f"not a database URL; {FORMS}") from None
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ValueError(f"a SQLite database must be a file; {FORMS}")
    if backend not in ("sqlite", "postgresql"):
        raise ValueError(f"only SQLite files and PostgreSQL are supported; {FORMS}")
    return url


class Settings(BaseSettings):
    """The service's settings. A value given in code wins over the environment.

    `max_layers_times_devices` bounds the size of a problem, `max_simulated_operations` that of a plan to simulate.
    `max_concurrent_solves` searches run at once in one process: the service itself on SQLite, each worker on
    PostgreSQL. `max_unfinished_jobs` may wait or run in all; others are refused. `max_wait_s` is the longest that a
    request waits for its answer before it is told where to find it later. Of the plans whose search has ended, the last
    `keep_plans` are kept, of `keep_bytes` in all, and as many of simulations and emulations. A worker that is not heard
    of for `lease_s` has lost its jobs, and a job that was lost `max_attempts` times is given up.
    """

    model_config = SettingsConfigDict(env_prefix="BAPIPE_", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    database_url: Annotated[str, AfterValidator(_database_url)] = "sqlite:///bapipe.sqlite3"
    keep_plans: Annotated[int, Field(ge=1)] = 1000
    keep_bytes: Annotated[int, Field(ge=1)] = 4 * 2**30
    max_body_bytes: Annotated[int, Field(ge=1)] = 16 * 2**20
    header_timeout_s: Annotated[float, Field(gt=0)] = 10.0
    body_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    max_layers_times_devices: Annotated[int, Field(ge=1)] = 1_000_000
    max_simulated_operations: Annotated[int, Field(ge=1)] = 500_000
    max_time_limit_s: Annotated[float, Field(gt=0)] = 3600.0
    max_search_memory_bytes: Annotated[int, Field(ge=1)] = 4 * 2**30
    max_concurrent_solves: Annotated[int, Field(ge=1)] = Field(default_factory=lambda: os.cpu_count() or 1)
    max_unfinished_jobs: Annotated[int, Field(ge=1)] = 2000
    max_unfinished_jobs_per_key: Annotated[int, Field(ge=1)] = 500
    max_attempts: Annotated[int, Field(ge=1)] = 3
    lease_s: Annotated[float, Field(ge=1)] = 10.0
    max_wait_s: Annotated[float, Field(ge=0)] = 300.0
    shutdown_grace_s: Annotated[float, Field(ge=0)] = 5.0
    log_format: Literal["auto", "text", "json"] = "auto"

    @property
    def url(self) -> URL:
        """Where the store is, with the driver that is used."""
        parsed = make_url(self.database_url)
        return parsed.set(drivername="postgresql+psycopg") if self.distributed else parsed

    @property
    def keep(self) -> Keep:
        """How much is kept of what has ended."""
        return Keep(self.keep_plans, self.keep_bytes)

    @property
    def distributed(self) -> bool:
        """Whether searches run in workers beside the service: on PostgreSQL, not on SQLite."""
        return make_url(self.database_url).get_backend_name() == "postgresql"
