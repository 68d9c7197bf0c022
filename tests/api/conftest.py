"""The service as users run it: a process of its own, on loopback, with a SQLite file."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from bapipe_api.examples import PLAN_REQUEST_EXAMPLES

START_LIMIT_S = 60.0
REAL = [sys.executable, "-m", "bapipe_api"]
SCRIPTED = [sys.executable, str(Path(__file__).parent / "scripted_service.py")]
JUDGES = Path(__file__).parents[1] / "solver"
ADDRESS = re.compile(r"running on (http://\S+)")


@dataclass
class Service:
    """A running service."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal, and returns how the process ended."""
        self.process.send_signal(number)
        return self.process.wait(30)


StartService = Callable[..., Service]


def start(command: list[str], folder: Path, **settings: Any) -> Service:
    """Starts `command` with these settings and a database in `folder`, and returns once it is ready."""
    folder.mkdir(exist_ok=True, parents=True)
    log = folder / f"service-{len(list(folder.glob('*.log')))}.log"
    given = {"port": 0, "database_url": f"sqlite:///{folder}/plans.sqlite3", **settings}
    environment = {f"BAPIPE_{name.upper()}": str(value) for name, value in given.items()}
    environment = os.environ | {"PYTHONPATH": str(JUDGES)} | environment
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment, cwd=folder)
    deadline = time.monotonic() + START_LIMIT_S
    while (address := ADDRESS.search(log.read_text())) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the service did not start:\n{log.read_text()}")
        time.sleep(0.02)
    return Service(process, address[1], log)


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[StartService]:
    """Starts services on one database in `tmp_path`; `scripted=True`: with scripted_service.py's solves."""
    running: list[Service] = []

    def begin(*, scripted: bool = False, **settings: Any) -> Service:
        running.append(start(SCRIPTED if scripted else REAL, tmp_path, **settings))
        return running[-1]

    yield begin
    for service in running:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests that only ask it."""
    service = start(REAL, tmp_path_factory.mktemp("service"), max_body_bytes=1_000_000)
    yield service
    assert service.stop() == -signal.SIGTERM, service.log.read_text()


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with scripted_service.py's solves."""
    service = start(SCRIPTED, tmp_path_factory.mktemp("scripted"), max_concurrent_solves=4)
    yield service
    service.stop()


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    """Plain HTTP to `service`."""
    with httpx.Client(base_url=service.url, timeout=60) as client:
        yield client


@pytest.fixture
def request_json() -> dict[str, Any]:
    """A small request that is right."""
    value: dict[str, Any] = PLAN_REQUEST_EXAMPLES["two-devices"]["value"]
    return {**value}


@pytest.fixture
def unused_listener() -> Iterator[str]:
    """The address of something that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
