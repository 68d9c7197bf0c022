"""Every setting of the service, in one place: environment variables `BAPIPE_*`, checked when they are read."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError


def _sqlite_file(url: str) -> str:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError("not a database URL; write sqlite:///path/to/file.sqlite3") from None
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        raise ValueError("only SQLite files are supported; write sqlite:///path/to/file.sqlite3")
    return url


class Settings(BaseSettings):
    """The service's settings. A value given in code wins over the environment.

    `max_layers_times_devices` bounds the size of a problem, `max_simulated_operations` that of a plan to simulate.
    So many searches run at once, and so many more wait for their turn; others are refused. `max_wait_s` is the longest
    that a request waits for its plan before it is told where to find it later. Of the plans whose search has ended, the
    last `keep_plans` are kept.
    """

    model_config = SettingsConfigDict(env_prefix="BAPIPE_", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    database_url: Annotated[str, AfterValidator(_sqlite_file)] = "sqlite:///bapipe.sqlite3"
    keep_plans: Annotated[int, Field(ge=1)] = 1000
    max_body_bytes: Annotated[int, Field(ge=1)] = 16 * 2**20
    header_timeout_s: Annotated[float, Field(gt=0)] = 10.0
    body_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    max_layers_times_devices: Annotated[int, Field(ge=1)] = 1_000_000
    max_simulated_operations: Annotated[int, Field(ge=1)] = 500_000
    max_time_limit_s: Annotated[float, Field(gt=0)] = 3600.0
    max_search_memory_bytes: Annotated[int, Field(ge=1)] = 4 * 2**30
    max_concurrent_solves: Annotated[int, Field(ge=1)] = Field(default_factory=lambda: os.cpu_count() or 1)
    max_queued_solves: Annotated[int, Field(ge=0)] = 16
    max_wait_s: Annotated[float, Field(ge=0)] = 300.0
    shutdown_grace_s: Annotated[float, Field(ge=0)] = 5.0
