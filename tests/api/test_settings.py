"""Settings come from the environment, and are refused when they are wrong."""

from __future__ import annotations

import os
import subprocess
import sys
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
        ("database_url", "postgresql://localhost/bapipe"),
    ],
)
def test_a_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"BAPIPE_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        Settings()


def test_a_service_with_wrong_settings_does_not_start(tmp_path: Path) -> None:
    environment = os.environ | {"BAPIPE_PORT": "http"}
    command = [sys.executable, "-m", "bapipe_api"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "port" in ended.stderr
    assert "Traceback" not in ended.stderr
