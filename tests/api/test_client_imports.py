"""The client needs httpx and pydantic: nothing of the solver's or the service's, installed or not."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

ABSENT = {"numpy", "ortools", "pulp", "fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic",
          "psycopg", "procrastinate", "prometheus_client", "torch"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import bapipe_client
from bapipe_client import Client
with Client("http://127.0.0.1:1", retries=0) as client:
    assert not client.ready()
"""


def test_the_client_runs_with_its_own_dependencies_only() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], check=True)
