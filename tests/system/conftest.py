"""Programs as a user starts them: real processes of the installed packages."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

Completed = subprocess.CompletedProcess[str]
Bapipe = Callable[..., Completed]
START_LIMIT_S = 60.0


@pytest.fixture
def bapipe(tmp_path: Path) -> Bapipe:
    """Runs `bapipe` with these arguments in an empty folder, as the console script would."""

    def run(*arguments: str, **options: Any) -> Completed:
        command = [sys.executable, "-m", "bapipe_cli", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False, **options
        )

    return run


@pytest.fixture
def hard_profile(tmp_path: Path) -> str:
    """A chain of 600 unlike layers: more partitions than any search sees in the time of a test."""
    draw = random.Random(7)
    layers = [
        {
            "id": f"layer{index}",
            "times": [
                {
                    "device_kind": "reference",
                    "microbatch_size": 1,
                    "forward_s": draw.uniform(0.001, 0.02),
                    "backward_s": draw.uniform(0.001, 0.04),
                }
            ],
            "output_bytes_per_sample": draw.uniform(1e6, 2e7),
        }
        for index in range(600)
    ]
    path = tmp_path / "hard.json"
    path.write_text(json.dumps({"name": "hard", "layers": layers}))
    return str(path)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """The address of `bapipe serve` on loopback, with a database of its own."""
    port = _free_port()
    database = str(tmp_path / "plans.sqlite3")
    command = [sys.executable, "-m", "bapipe_cli", "serve", "--port", str(port), "--database", database]
    with (tmp_path / "service.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(process, url)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not _answers(url):
        assert process.poll() is None, "the service ended"
        assert time.monotonic() < deadline, "the service does not answer"
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def answers() -> Callable[[str], bool]:
    """Whether a service at an address is ready."""
    return _answers


@pytest.fixture
def read_until() -> Callable[[int, str, subprocess.Popen[Any]], str]:
    """What comes from a descriptor until a text is in it, while a process lives."""

    def read(descriptor: int, text: str, process: subprocess.Popen[Any]) -> str:
        seen = ""
        while text not in seen:
            assert process.poll() is None, f"the program ended after: {seen}"
            seen += os.read(descriptor, 4096).decode(errors="replace")
        return seen

    return read
