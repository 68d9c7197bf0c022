"""The script that is prepared for a machine with a GPU runs to its end on a CPU, at tiny size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

ROOT = Path(__file__).parents[2]


def test_the_gpu_check_runs_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu", "--size", "tiny", "--output"]

    result = subprocess.run(
        [*command, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert "gpt2 in 4 stages on one device, 8 micro-batches of 2" in result.stdout
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert outcome["predicted_peak_bytes"] > 0
    assert outcome["measured_s"] > 0
    assert all(0 < loss < 10 for loss in outcome["losses"])
    for name in ("resnet50", "gpt2"):
        layers = json.loads((tmp_path / f"{name}.profile.json").read_text())["layers"]
        assert all(time["forward_s"] > 0 for layer in layers for time in layer["times"])
