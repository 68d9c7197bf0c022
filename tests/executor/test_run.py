"""`bapipe run` as a user starts it: torchrun, workers, and what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from bapipe.errors import InvalidInputError
from bapipe.formats import load_profile, to_json
from bapipe.plan import Plan
from bapipe_cli.commands.run import going_on_text, restart_text
from bapipe_executor import events, launch, run_parts
from bapipe_executor.run_spec import RunSpec
from harness.orders import one_stage_a_rank
from harness.plans import cut, make_plan
from harness.training import Network, Training, train_in_one_process

pytestmark = pytest.mark.xdist_group("executor workers")

RANKS = ((0,), (1,))
FACTORIES = """
import torch
from bapipe_executor import Batch
from bapipe_executor.models import gpt2

def model():
    return gpt2.tiny(seed=1).double()

def model_data(batch_size):
    return gpt2.tiny_data(batch_size, seed=2)

def three_batches(batch_size):
    batches = iter(model_data(batch_size))
    return [next(batches) for _ in range(3)]

loss = gpt2.loss

def plain():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))

def plain_data(batch_size):
    return [Batch({"input": torch.ones(batch_size, 4)}, torch.zeros(batch_size, dtype=torch.long))] * 2
"""


def gpt2_plan(**changes: Any) -> Plan:
    model = Network("gpt2").model()
    return make_plan(model, cut(model, (1, 2)), RANKS, one_stage_a_rank("1f1b", RANKS, 4), 4, name="1f1b", **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FACTORIES)
    (tmp_path / "plan.json").write_text(to_json(gpt2_plan()))
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bapipe_cli", "run", "plan.json", "--model", "mine:model", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_it_trains_what_one_process_trains(folder: Path) -> None:
    done = run(folder, "--steps", "2", "--optimizer", "adam", "--learning-rate", "0.001")
    assert done.returncode == 0, done.stderr
    expected = train_in_one_process(Network("gpt2"), 4, 2, Training("adam", steps=2))
    for step, loss in enumerate(expected.losses, start=1):
        assert f"step {step}: loss {loss:.6g}, " in done.stderr
    assert done.stdout.startswith(f"2 steps; loss {expected.losses[-1]:.6g}; the last step took ")


def test_it_goes_on_and_reports_what_was_measured(folder: Path) -> None:
    done = run(folder, "--steps", "1", "--checkpoint", "saved")
    assert done.returncode == 0, done.stderr
    done = run(folder, "--steps", "1", "--checkpoint", "saved")
    assert done.returncode == 3
    assert "add --resume to go on from it" in done.stderr
    done = run(folder, "--steps", "3", "--checkpoint", "saved", "--resume", "--report", "report")
    assert done.returncode == 0, done.stderr
    assert "bapipe: going on after step 1" in done.stderr
    assert "step 1: loss" not in done.stderr
    assert "kept and received" in done.stdout
    assert {path.name for path in (folder / "report").iterdir()} >= {"report.json", "trace.json", "rank-1.json"}
    command = [sys.executable, "-m", "bapipe_cli", "calibrate", "report", "-o", "measured.json"]
    subprocess.run(command, cwd=folder, check=True, timeout=240)
    made = load_profile(folder / "measured.json")
    assert [layer.id for layer in made.layers] == list(Network("gpt2").model().names)


def test_a_restart_says_why_and_from_where() -> None:
    event = {"event": "restart", "attempt": 1, "reason": "rank 1 ended without a word", "step": 8}
    start = "bapipe: rank 1 ended without a word; restart 1 of 3 from"
    assert restart_text(event, 3) == f"{start} the checkpoint of step 8"
    assert restart_text(event | {"step": 0}, 3) == f"{start} the start: no checkpoint yet"


def test_what_is_done_already_is_said() -> None:
    assert going_on_text(2, 3) == "bapipe: going on after step 2"
    assert "nothing to do: the newest checkpoint has 5 steps already, and --steps asks for 5" in going_on_text(5, 5)


def test_the_example_trains(folder: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "train.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(example)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "plan.json"], cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [f"step {k}" for k in range(1, 6)]


def test_a_worker_that_fails_ends_the_run_with_its_reason(folder: Path) -> None:
    done = run(folder, "--steps", "5", "--data", "mine:three_batches")
    assert done.returncode == 7
    assert "step 3: loss" in done.stderr
    assert "the data ended after 3 of 5 mini-batches" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_is_wrong_is_said_before_anything_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch.subprocess, "Popen", None)
    monkeypatch.syspath_prepend(folder)
    good = {"model": "mine:model", "data": "mine:model_data", "loss": "mine:loss", "steps": 1}
    launch.check_run(gpt2_plan(), RunSpec(**good))
    for change, code in (
        ({"model": "mine:nothing"}, "no_such_name"),
        ({"model": "bapipe_executor.models.unet:tiny"}, "dangling_reference"),
        ({"optimizer": "adem"}, "unknown_value"),
        ({"lr_scheduler": "mine"}, "wrong_reference"),
        ({"loss": "absent:loss"}, "no_such_module"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            launch.check_run(gpt2_plan(), RunSpec(**(good | change)))
        assert caught.value.faults[0].code == code
    with pytest.raises(InvalidInputError):
        launch.check_run(gpt2_plan(task="inference"), RunSpec(**good))


def test_a_network_without_layers_has_them_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    spec = RunSpec(model="mine:plain", data="mine:plain_data", loss="bapipe_executor:MaskedCrossEntropy", steps=1)
    model = run_parts.make_model(spec)
    names = model.names
    subject = make_plan(model, [names[:1], names[1:]], RANKS, one_stage_a_rank("1f1b", RANKS, 2), 2)
    launch.check_run(subject, spec)
    assert run_parts.make_model(spec).state_dict().keys() == model.state_dict().keys()


def test_hosts_start_their_own_ranks() -> None:
    plan = gpt2_plan()
    devices = list(plan.request.cluster.devices)
    devices[1] = devices[1].model_copy(update={"host": "host1"})
    cluster = plan.request.cluster.model_copy(update={"devices": tuple(devices)})
    spread = plan.model_copy(update={"request": plan.request.model_copy(update={"cluster": cluster})})
    here = launch.Hosts(2, 1, "first:1234")
    assert launch.ranks_here(spread, launch.Hosts()) == 2
    assert launch.ranks_here(spread, here) == 1
    command = launch.torchrun_command(1, here, "folder")
    assert {"--nnodes=2", "--node-rank=1", "--master-addr=first", "--master-port=1234"} <= set(command)
    with pytest.raises(InvalidInputError):
        launch.ranks_here(plan, here)


def test_events_are_told_from_what_else_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    events.emit("step", loss=1.5)
    line = capsys.readouterr().out
    assert events.parse(line) == {"event": "step", "loss": 1.5}
    assert events.parse("hello\n") is None
    assert events.parse(f"{events.MARK}[1, 2]\n") is None
    assert events.parse(f"{events.MARK}broken\n") is None
