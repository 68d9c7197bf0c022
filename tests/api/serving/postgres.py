"""A PostgreSQL cluster of the tests' own: in a temporary folder, on a free port, run by a user without rights."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg

USER = "postgres"
FAST = ("fsync=off", "full_page_writes=off", "max_connections=300", "unix_socket_directories=")
"""Tests kill PostgreSQL's clients and restart it in order, but never cut its power."""


def programs() -> Path | None:
    """The folder of initdb and pg_ctl; None where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


@dataclass
class Cluster:
    """A running cluster."""

    folder: Path
    port: int
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"bapipe{next(self._numbers)}"
        with psycopg.connect(f"host=127.0.0.1 port={self.port} user={USER}", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in (*FAST, "listen_addresses=127.0.0.1", f"port={self.port}"))
        log = self.folder / "postgres.log"
        self._run("pg_ctl", "start", "--wait", f"--pgdata={self.folder}/data", f"--log={log}", f"--options={options}")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "stop", "--wait", f"--pgdata={self.folder}/data", f"--mode={mode}")

    def restart(self) -> None:
        """What a package upgrade does: every connection breaks, and for a moment there is nobody to connect to."""
        self.stop()
        self.start()

    def initialise(self) -> None:
        self._run("initdb", f"--pgdata={self.folder}/data", "--auth=trust", f"--username={USER}", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        folder = programs()
        assert folder is not None
        command = [str(folder / program), *arguments]
        if os.geteuid() == 0:
            command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster, from its making to its end."""
    folder = Path(tempfile.mkdtemp(prefix="bapipe-postgres-"))
    if os.geteuid() == 0:
        user = pwd.getpwnam(USER)
        os.chown(folder, user.pw_uid, user.pw_gid)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Cluster(folder, port)
    try:
        made.initialise()
        made.start()
        yield made
        made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
