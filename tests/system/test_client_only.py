"""The wheel without extras, in an environment of its own: all that calls a service is there, and nothing heavy is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ.get("BAPIPE_CLIENT_ENV", "")
PROGRAMS = (ROOT / ENVIRONMENT / "bin").absolute()
HEAVY = ("ortools", "pulp", "highspy", "numpy", "torch", "fastapi", "uvicorn", "sqlalchemy", "procrastinate")
TINY = (str(ROOT / "examples" / "tiny.json"), str(ROOT / "examples" / "tiny.cluster.json"), "--batch", "16")

pytestmark = pytest.mark.skipif(not ENVIRONMENT, reason="`make test` builds the environment of the client")

CALLS = f"""
import sys
from importlib.util import find_spec

import bapipe_client

HEAVY = {HEAVY!r}
assert "typer" not in sys.modules
assert not [name for name in HEAVY if find_spec(name)], "not a client's environment"

from bapipe.formats import load_cluster, load_profile

asked = {{"profile": load_profile(sys.argv[2]), "cluster": load_cluster(sys.argv[3]), "batch_size": 16}}
with bapipe_client.Client(sys.argv[1]) as client:
    plan = client.plan(**asked)
    job = client.submit_simulation(plan)
    assert job.result().faults == ()
    assert job.export("html").startswith("<!doctype html>")
    assert client.export(next(client.plans()).id, "csv")
assert not set(HEAVY) & set(sys.modules)
print(plan.model_dump_json())
"""


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of the client's environment, which knows of no other."""
    environment = {"PATH": f"{PROGRAMS}{os.pathsep}/usr/bin:/bin"}
    return subprocess.run(
        [PROGRAMS / program, *arguments], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_client_plans_and_imports_nothing_heavy(service: str, bapipe: Any, tmp_path: Path) -> None:
    called = run(tmp_path, "python", "-W", "error", "-c", CALLS, service, *TINY[:2])

    assert (called.returncode, called.stderr) == (0, "")
    there, here = json.loads(called.stdout), json.loads(bapipe("plan", *TINY, "--json").stdout)
    assert there["prediction"] == here["prediction"]


def test_the_command_does_all_that_a_service_does(service: str, tmp_path: Path) -> None:
    there = ("--server", service)
    assert run(tmp_path, "bapipe", "plan", *TINY, "-o", "plan.json", *there).stdout.startswith("optimal: ")
    assert run(tmp_path, "bapipe", "plan", *TINY, "--request-only", "-o", "request.json").returncode == 0
    for arguments in (
        ["compare", *TINY],
        ["simulate", "plan.json", "--html", "timeline.html", "--trace", "trace.json"],
        ["validate", "request.json"],
        ["import", TINY[0]],
        ["presets", "V100-16G"],
    ):
        done = run(tmp_path, "bapipe", *arguments, *there)
        assert (done.returncode, done.stderr) == (0, ""), arguments
        assert done.stdout

    refused = run(tmp_path, "bapipe", "plan", *TINY)
    assert refused.returncode == 2
    assert refused.stderr == "bapipe: this command needs numpy: install bapipe[solver]\n"
