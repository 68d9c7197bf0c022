"""A small problem as plain JSON values, and the command run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bapipe_cli.app import app

Run = Callable[..., Result]


def layer(name: str, forward_s: float, backward_s: float) -> dict[str, Any]:
    """A layer measured on device kind `reference` with one sample."""
    times = [{"device_kind": "reference", "microbatch_size": 1, "forward_s": forward_s, "backward_s": backward_s}]
    return {"id": name, "times": times, "parameter_bytes": 4000, "output_bytes_per_sample": 1000.0}


@pytest.fixture
def profile() -> dict[str, Any]:
    """A chain of four layers, the third twice as slow."""
    layers = [layer("a", 0.01, 0.02), layer("b", 0.01, 0.02), layer("c", 0.02, 0.04), layer("d", 0.01, 0.02)]
    return {"schema_version": 1, "name": "four", "layers": layers}


@pytest.fixture
def cluster() -> dict[str, Any]:
    """Two devices of kind `reference` on a link of 1 GB/s."""
    return {
        "schema_version": 1,
        "kinds": [{"name": "reference", "memory_bytes": 10**9}],
        "devices": [{"id": "d0", "kind": "reference"}, {"id": "d1", "kind": "reference"}],
        "links": {"within_host": {"bandwidth_bytes_per_s": 1e9}},
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], str]:
    """Writes plain JSON values, NaN and infinities included, and says where."""

    def write_json(name: str, data: Any) -> str:
        path = tmp_path / name
        path.write_text(json.dumps(data), encoding="utf-8")
        return str(path)

    return write_json


@pytest.fixture
def run() -> Run:
    """The command with these arguments, in a wide terminal."""

    def run_command(*arguments: str, **extra: Any) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments, **extra)

    return run_command
