"""Processes of the service: started, watched, killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

PATIENCE_S = 60.0
ROOTS = (Path(__file__).parents[1], Path(__file__).parents[2] / "solver")
"""Where `serving` and `judges` are found."""

NUMBERS = count()

ADDRESS = re.compile(r"running on (http://[\d.:]+\d)")
READY = re.compile(r"(worker \S+) is ready")


@dataclass
class Service:
    """A running process of the service; `url` is "" for a worker."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal, and returns how the process ended."""
        self.process.send_signal(number)
        return self.process.wait(30)


def start(
    folder: Path, *, role: str = "serve", scripted: bool = False, arguments: tuple[str, ...] = (), **settings: Any
) -> Service:
    """Starts a service or a worker with its log in `folder`, and returns once it is ready."""
    folder.mkdir(exist_ok=True, parents=True)
    log = folder / f"{role}-{next(NUMBERS)}.log"
    given = {"port": 0, "database_url": f"sqlite:///{folder}/plans.sqlite3", **settings}
    environment = {f"BAPIPE_{name.upper()}": str(value) for name, value in given.items()}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, ROOTS))} | environment
    command = [sys.executable, "-m", *(["serving.scripted", role] if scripted else ["bapipe_cli", role]), *arguments]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream, env=environment, cwd=folder)
    deadline = time.monotonic() + PATIENCE_S
    while (found := (ADDRESS if role == "serve" else READY).search(log.read_text())) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the {role} did not start:\n{log.read_text()}")
        time.sleep(0.02)
    return Service(process, found[1] if role == "serve" else "", log)


def end(service: Service) -> None:
    """Kills it, if it still runs."""
    if service.process.poll() is None:
        service.process.kill()
        service.process.wait()


def until(condition: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """What `condition` returns as soon as it is true."""
    end_s = time.monotonic() + patience_s
    while not (value := condition()):
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.02)
    return value


def children(process: int) -> set[int]:
    """The processes below `process`, from /proc."""
    parents = _parents()
    found: set[int] = set()
    new = {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def solvers(process: int) -> list[int]:
    """The processes of searches of a service or a worker: each is forked from a child of its own."""
    parents = _parents()
    return sorted(child for child, parent in parents.items() if parents.get(parent) == process)


def _parents() -> dict[int, int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(stat.parent.name)] = int(fields[1])
    return parents
