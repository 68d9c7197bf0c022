"""A service that cannot start says why in a line; a reader that leaves ends a command quietly."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


def test_a_port_in_use(bapipe: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = bapipe("serve", "--port", str(taken.getsockname()[1]))

    assert result.returncode == 6
    assert len(result.stderr.splitlines()) == 1
    assert "--port" in result.stderr


def test_a_store_in_use(bapipe: Any, service: str, tmp_path: Path) -> None:
    result = bapipe("serve", "--port", "0", "--database", str(tmp_path / "plans.sqlite3"))

    assert result.returncode == 6
    assert len(result.stderr.splitlines()) == 1
    assert "--database" in result.stderr


def test_a_store_that_is_none(bapipe: Any, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but a text of some length\n" * 99)

    result = bapipe("serve", "--port", "0", "--database", "text")

    assert result.returncode == 6
    assert len(result.stderr.splitlines()) == 1
    assert "--database" in result.stderr


def test_a_host_that_others_reach_needs_keys(bapipe: Any) -> None:
    result = bapipe("serve", "--port", "0", "--host", "0.0.0.0")

    assert result.returncode == 6
    assert len(result.stderr.splitlines()) == 1
    assert "bapipe keys create" in result.stderr


def test_a_host_that_is_not_there(bapipe: Any) -> None:
    assert bapipe("keys", "create", "--name", "me").returncode == 0

    result = bapipe("serve", "--port", "0", "--host", "192.0.2.1")

    assert result.returncode == 6
    assert "--host" in result.stderr


def test_a_reader_that_leaves_ends_the_command_quietly(tmp_path: Path) -> None:
    arguments = ["plan", "vgg16", "1xV100-16G", "--batch", "1", "--schedules", "gpipe"]
    for more in ([], ["--json"], ["--request-only"]):
        with subprocess.Popen(
            [sys.executable, "-m", "bapipe_cli", *arguments, *more],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.close()
            assert process.stderr is not None
            assert process.stderr.read() == b""
            assert process.wait(timeout=60) == 141
