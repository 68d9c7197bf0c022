"""Settings come from the environment, and are refused when they are wrong."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from bapipe_api import Settings


def test_the_service_is_private_unless_told_otherwise() -> None:
    assert Settings().host == "127.0.0.1"


def test_the_environment_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAPIPE_PORT", "8001")
    monkeypatch.setenv("BAPIPE_DATABASE_URL", "sqlite:////data/plans.sqlite3")
    settings = Settings(max_wait_s=7)
    assert (settings.port, settings.database_url, settings.max_wait_s) == (8001, "sqlite:////data/plans.sqlite3", 7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "70000"),
        ("port", "http"),
        ("max_body_bytes", "0"),
        ("max_concurrent_solves", "0"),
        ("max_time_limit_s", "-1"),
        ("max_wait_s", "nan"),
        ("database_url", "plans.sqlite3"),
        ("database_url", "sqlite://"),
        ("database_url", "sqlite:///:memory:"),
        ("database_url", "mysql://localhost/bapipe"),
        ("lease_s", "0"),
        ("log_format", "xml"),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"BAPIPE_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        Settings()


def started(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """How a service with these settings ended, that cannot start."""
    environment = os.environ | {f"BAPIPE_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "bapipe_api"]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def other_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE jobs (id TEXT)")


UNUSABLE: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_text("no database, but a text of some length\n" * 99),
    "a folder": lambda path: path.mkdir(),
    "tables of another program": other_tables,
    "a folder that is a file": lambda path: path.parent.write_text(""),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_service_without_a_store_says_so_in_a_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "folder" / "plans.sqlite3"
    if what != "a folder that is a file":
        path.parent.mkdir()
    UNUSABLE[what](path)
    ended = started(tmp_path, port="0", database_url=f"sqlite:///{path}")
    assert ended.returncode == 6
    assert len(ended.stderr.splitlines()) == 1
    assert "BAPIPE_DATABASE_URL" in ended.stderr


def test_a_service_without_a_port_says_so_in_a_line(tmp_path: Path, unused_listener: str) -> None:
    ended = started(tmp_path, port=unused_listener.rpartition(":")[2])
    assert ended.returncode == 6
    assert len(ended.stderr.splitlines()) == 1
    assert "BAPIPE_PORT" in ended.stderr


def test_a_service_with_wrong_settings_does_not_start(tmp_path: Path) -> None:
    ended = started(tmp_path, port="http")
    assert ended.returncode == 2
    assert "port" in ended.stderr
    assert "Traceback" not in ended.stderr
