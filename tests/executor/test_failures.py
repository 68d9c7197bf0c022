"""What a rank says of its end: what happened, where in the user's code, and whose fault it was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch
import torch.distributed as dist
from torch import nn

from bapipe.errors import DivergedError, InvalidInputError
from bapipe_executor import failures, watch
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.stage_interface import stage_interfaces
from bapipe_executor.stage_module import StageModule
from bapipe_executor.training_loop import StepReport
from bapipe_executor.value_specs import TensorSpec
from bapipe_executor.worker import FiniteLoss


def test_an_error_in_the_users_code_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise KeyError("blocks.7")

    try:
        fails()
    except KeyError as error:
        told = failures.told(error)
        failures.print_defect(error)
    assert told["error"] == "KeyError"
    assert told["message"].startswith("'blocks.7' (test_failures.py, line ")
    assert not told["lasting"]
    assert not told["lost"]
    assert capsys.readouterr().err == ""


def test_an_error_in_a_layer_has_its_name() -> None:
    model = LayeredModel({"a": nn.Linear(4, 4)}, {"a": ["x"]}, ["x"], "a")
    specs = {"a": TensorSpec(torch.Size((2, 4)), torch.float32, True)}
    stage = StageModule(model, model.layers, stage_interfaces(model, [("a",)], specs)[0], specs)
    with pytest.raises(RuntimeError) as caught:
        stage(x=torch.ones(2, 3))
    assert "(in layer 'a'" in failures.told(caught.value)["message"]


def test_what_torch_wraps_is_told_as_it_was() -> None:
    cause = RuntimeError("mat1 and mat2 must have the same dtype")
    cause.add_note("in layer 'a'")
    wrapped = RuntimeError("[Stage 0] failed to run forward")
    wrapped.__cause__ = cause
    assert failures.told(wrapped)["message"] == "mat1 and mat2 must have the same dtype (in layer 'a')"


def test_a_lost_connection_is_not_the_cause() -> None:
    with pytest.raises(ValueError, match="process group") as caught:
        dist.barrier()
    assert failures.told(caught.value)["lost"] is False  # raised for this test's line
    caught.value.__traceback__ = caught.tb.tb_next  # as where only torch is on the way
    lost = failures.told(caught.value)
    assert lost["lost"] is True
    seen = watch.Watch(5.0)
    seen.note({"event": "failed", "rank": 0, **lost})
    seen.note({"event": "failed", "rank": 1, "error": "E", "message": "m", "lasting": False, "lost": False})
    assert str(seen.failure(1)) == "rank 1 failed: E: m"


def test_a_rank_that_is_about_to_be_gone_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connections close a moment before its process is gone."""
    looks = iter((True, True, False))
    monkeypatch.setattr(watch, "_runs", lambda pid: pid == 100 or next(looks))
    seen = watch.Watch(5.0)
    for rank in (0, 1):
        seen.note({"event": "started", "rank": rank, "pid": 100 + rank})
    seen.note({"event": "failed", "rank": 0, "error": "E", "message": "reset", "lasting": False, "lost": True})
    assert str(seen.failure(1)) == "rank 1 ended without a word: killed, or out of memory?"


def test_a_loss_that_is_no_number_ends_the_run_for_good() -> None:
    hook = FiniteLoss()
    hook.after_step(None, StepReport(3, 1.5, 0.1, 8))  # type: ignore[arg-type]
    with pytest.raises(DivergedError, match="the loss of step 4 is nan") as caught:
        hook.after_step(None, StepReport(4, float("nan"), 0.1, 8))  # type: ignore[arg-type]
    assert failures.told(caught.value)["lasting"]
    assert failures.told(InvalidInputError([]))["lasting"]


def test_ranks_that_are_never_ready_are_told_from_those_that_hang() -> None:
    assert "making the network and the data takes longer" in str(watch.Watch(1.0).failure(None))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(
        "import signal, time\nfrom bapipe_executor.lifeline import end_with_parent\n"
        "end_with_parent(signal.SIGKILL)\nprint('here', flush=True)\ntime.sleep(600)\n"
    )
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import os, subprocess, sys\nfrom bapipe_executor.lifeline import with_parent\n"
        f"child = subprocess.Popen([sys.executable, {str(child)!r}], env=with_parent(os.environ), "
        "stdout=subprocess.PIPE)\nchild.stdout.readline()\nprint(child.pid, flush=True)\nchild.wait()\n"
    )
    with subprocess.Popen([sys.executable, str(parent)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert watch._runs(pid)
        process.kill()
    for _ in range(200):
        if not watch._runs(pid):
            break
        time.sleep(0.05)
    assert not watch._runs(pid)
    environment = {**os.environ, "BAPIPE_PARENT": "1"}
    assert subprocess.run([sys.executable, str(child)], env=environment, check=False).returncode == -9
