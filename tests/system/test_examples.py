"""The example programs run, each against a service as a user starts it; they need nothing but the client."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bapipe_client import Client

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CLIENT_ENV = os.environ.get("BAPIPE_CLIENT_ENV")
PYTHON = str(ROOT / CLIENT_ENV / "bin" / "python") if CLIENT_ENV else sys.executable
"""Where there is an environment with the client only, the examples run there."""

PRINTS = {
    "plan.py": r"optimal: \d+\.\d\d ms a step, gap 0\.00%\nstage 0 on host0/gpu0: features",
    "follow.py": r"plan [0-9a-f]{32} is (queued|running)\n(.*\n)+(succeeded|cancelled|timed_out), with a plan: True",
    "many.py": r"4xV100-16G:nvlink2 (.*\n){4}",
    "again.py": r"[0-9a-f]{32} succeeded \*",
    "files.py": r"written: trace.json\nsimulated: \d+\.\d\d ms a step, 0 faults\n(.*): succeeded\n",
    "boards.py": r"a step: .* J\n(with host0/fpga\d at half its .* ms\n){2}([0-9a-f]{32}: .* samples/s\n){3}",
    "presets.py": r"V100-16G: 16 GiB, .*\n(.*\n)*vgg16: 38 layers, 138,357,544 parameters\n(.*\n)*vgg16 on .* 356\.\d",
    "faults.py": r"/batch_size: .*\n/gap: .*\n(.*\n)+ready: False\nnot reached, and not carried out",
}


def test_every_task_has_an_example() -> None:
    """What a client can do is shown somewhere, and so run here."""
    shown = "".join(path.read_text(encoding="utf-8") for path in (EXAMPLES / "sdk").glob("*.py"))
    tasks = {name for name in vars(Client) if not name.startswith("_")} - {"close"}
    assert tasks == set(re.findall(r"\b(?:client|nowhere)\.(\w+)\(", shown))
    assert {"events", "cancel", "wait", "result", "plan", "export"} <= set(re.findall(r"\.(\w+)\(", shown))


def test_every_example_is_run() -> None:
    assert {path.name for path in (EXAMPLES / "sdk").glob("*.py")} == set(PRINTS)


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_runs(name: str, service: str, tmp_path: Path) -> None:
    command = [PYTHON, "-W", "error", str(EXAMPLES / "sdk" / name), service]
    command += [str(EXAMPLES / "tiny.graph.txt")] if name == "files.py" else []

    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert (result.returncode, result.stderr) == (0, "")
    assert re.search(PRINTS[name], result.stdout), result.stdout
