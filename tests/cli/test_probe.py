"""`bapipe probe`: two real ranks measure each other, and the file that they write is planned for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="bapipe probe needs torch: install bapipe[executor]")


def test_two_ranks_write_a_cluster_to_plan_for(
    run: Callable[..., Any], profile: Any, write: Any, tmp_path: Path
) -> None:
    target, report = tmp_path / "cluster.json", tmp_path / "report.json"

    options = ["--sizes", "4096,65536,1048576", "--repeats", "2", "--device-kind", "reference"]
    result = run("probe", "--ranks", "2", *options, "-o", str(target), "--report", str(report))

    assert result.exit_code == 0, result.output
    assert "All-reduce over all ranks" in result.stdout
    cluster = json.loads(target.read_text())
    (pair,) = cluster["links"]["pairs"]
    assert pair["devices"] == [device["id"] for device in cluster["devices"]]
    assert pair["link"]["bandwidth_bytes_per_s"] > 0
    assert len(json.loads(report.read_text())["pairs"][0]["points"]["alone"]) == 3
    planned = run("plan", write("profile.json", profile), str(target), "--batch", "8", "--json")
    assert planned.exit_code == 0, planned.output


def test_ranks_that_fail_are_shown(run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = tmp_path / "python"
    launcher.write_text("#!/bin/sh\necho connection refused >&2\nexit 7\n")
    launcher.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(launcher))

    result = run("probe", "-o", str(tmp_path / "cluster.json"))

    assert result.exit_code == 1
    assert "exit code 7" in result.stderr
    assert "connection refused" in result.stderr


@pytest.mark.parametrize("sizes", ["4096", "5,8", "0,4", "x"])
def test_sizes_are_checked_first(run: Callable[..., Any], tmp_path: Path, sizes: str) -> None:
    assert run("probe", "--sizes", sizes, "-o", str(tmp_path / "c.json")).exit_code == 2


def test_without_torch_the_extra_is_named(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    result = run("probe", "-o", str(tmp_path / "cluster.json"))

    assert result.exit_code == 2
    assert "install bapipe[executor]" in result.stderr
