"""Ranks that are killed, and ranks that hang: the run is ended at once, and goes on from its newest checkpoint."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from bapipe.errors import RunFailedError
from bapipe_executor import launch, supervisor, watch
from harness.checkpoints import contents, noisy_plan, run_rank, spec_of, unlike
from harness.disasters import Disaster
from harness.pool import Pool

pytestmark = pytest.mark.xdist_group("executor workers")

HARNESS = str(Path(__file__).parent)


def test_killed_and_stopped_ranks_leave_no_trace(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank is killed, later the other one stops; in the end everything is as if nothing had happened."""
    monkeypatch.setenv("PYTHONPATH", HARNESS)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    whole, spec = tmp_path / "whole", spec_of(tmp_path / "hurt", 8, checkpoint_every=1, timeout_s=20.0)
    pool.run(run_rank, 2, noisy_plan(), spec_of(whole, 8))
    disaster = Disaster({3: (1, signal.SIGKILL), 6: (0, signal.SIGSTOP)})
    supervisor.supervise(noisy_plan(), spec, disaster.note, max_restarts=2)
    assert [event["attempt"] for event in disaster.restarts] == [1, 2]
    assert all(event["step"] >= 2 for event in disaster.restarts)
    assert disaster.restarts[0]["reason"] == "rank 1 ended without a word: killed, or out of memory?"
    assert disaster.restarts[1]["reason"].startswith("no step within 20 s after step ")
    assert not any(watch._runs(pid) for pid in disaster.all_pids)
    assert unlike(contents(whole / "step-00000008"), contents(tmp_path / "hurt" / "step-00000008")) == []


def script(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "script.py").write_text(text)
    return [sys.executable, str(tmp_path / "script.py")]


def test_a_lone_rank_that_hangs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process stands for torchrun and its rank: it does one step, and then nothing."""
    hangs = """
import os, time
from bapipe_executor.events import emit
emit("started", rank=0, pid=os.getpid())
emit("step", step=4)
time.sleep(600)
"""
    monkeypatch.setattr(launch, "torchrun_command", lambda *_: script(tmp_path, hangs))
    seen: list[dict[str, Any]] = []
    with pytest.raises(RunFailedError, match=r"no step within 0\.5 s after step 4") as caught:
        launch.launch(noisy_plan(), spec_of(tmp_path, 1, timeout_s=0.5), seen.append)
    assert not caught.value.lasting
    assert not watch._runs(seen[0]["pid"])


def test_what_would_fail_again_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = """
from bapipe_executor.events import emit
emit("failed", rank=1, error="RuntimeError", message="connection closed by peer", lasting=False)
emit("failed", rank=0, error="CheckpointError", message="no space left", lasting=True)
raise SystemExit(1)
"""
    monkeypatch.setattr(launch, "torchrun_command", lambda *_: script(tmp_path, fails))
    seen: list[str] = []
    with pytest.raises(RunFailedError, match="rank 0 failed: CheckpointError: no space left"):
        supervisor.supervise(noisy_plan(), spec_of(tmp_path, 1), lambda event: seen.append(event["event"]), 3)
    assert seen == ["failed", "failed"]


def test_the_last_attempt_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[tuple[int, bool]] = []

    def fails(plan: object, spec: Any, on_event: object, hosts: object, attempt: int) -> None:
        attempts.append((attempt, spec.resume))
        raise RunFailedError(f"reason {attempt}")

    monkeypatch.setattr(supervisor, "launch", fails)
    restarts: list[dict[str, Any]] = []
    with pytest.raises(RunFailedError, match="reason 2"):
        supervisor.supervise(noisy_plan(), spec_of(tmp_path, 1), restarts.append, 2)
    assert attempts == [(0, False), (1, True), (2, True)]
    assert [(event["attempt"], event["step"]) for event in restarts] == [(1, 0), (2, 0)]


def test_nothing_is_started_when_all_steps_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "launch", None)
    (tmp_path / "step-00000005").mkdir()
    seen: list[dict[str, Any]] = []
    supervisor.supervise(noisy_plan(), spec_of(tmp_path, 4, resume=True), seen.append, 2)
    assert seen == [{"event": "ready", "step": 5}]


def test_several_hosts_meet_at_the_next_port() -> None:
    first, second = (launch.torchrun_command(1, launch.Hosts(2, 1, "first:1234"), "folder", k) for k in range(2))
    assert "--master-port=1234" in first
    assert "--master-port=1235" in second


def test_a_watch_waits_for_what_other_ranks_say() -> None:
    watched = watch.Watch(5.0)
    start_s = watched.deadline_s
    watched.note({"event": "started", "rank": 0, "pid": os.getpid()})
    watched.note({"event": "ready", "step": 0})
    assert watched.deadline_s < start_s
    watched.note({"event": "failed", "rank": 0, "error": "E", "message": "m", "lasting": False})
    ends_s = watched.deadline_s
    assert ends_s <= time.monotonic() + watch.LAST_WORDS_S
    watched.note({"event": "step", "step": 1})
    assert watched.deadline_s == ends_s
    assert str(watched.failure(None)) == "rank 0 failed: E: m"
    assert "exit code is 9" in str(watch.Watch(1.0).failure(9))
