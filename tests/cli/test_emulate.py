"""`bapipe emulate`: boards and links in tables and JSON, faults on the command line, training on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bapipe.formats import to_json
from judges.boards import fpga, linear, relu
from judges.emulated import plan_on


@pytest.fixture
def file(write: Any) -> str:
    """A plan on three boards."""
    return write("plan.json", json.loads(to_json(plan_on(fpga(on_chip_bytes=2500, fifo_bytes=1000)))))


def test_a_step_is_told_board_by_board(run: Any, file: str) -> None:
    result = run("emulate", file)
    assert result.exit_code == 0, result.output
    for word in ("1f1b over 3 stages", "predicted", "energy", "Boards", "Links", "d2", "FIFO", "of 2 chunks"):
        assert word in result.stdout


def test_the_step_is_set_beside_what_is_done_without_a_planner(run: Any, write: Any, tmp_path: Path) -> None:
    made = plan_on(fpga(on_chip_bytes=2500))
    files = write("profile.json", json.loads(to_json(made.request.profile))), tmp_path / "plan.json"
    cluster = write("cluster.json", json.loads(to_json(made.request.cluster)))
    arguments = ["--batch", "12", "--schedules", "1f1b", "--microbatch-sizes", "3", "-o", str(files[1])]
    assert run("plan", files[0], cluster, *arguments).exit_code == 0
    assert "without a planner: data-parallel " in run("emulate", str(files[1])).stdout


def test_the_report_is_a_document(run: Any, file: str) -> None:
    found = json.loads(run("emulate", file, "--json").stdout)
    assert found["losses"] == []
    assert found["step_time_s"] > 0
    assert [board["device"] for board in found["boards"]] == ["d0", "d1", "d2"]
    assert found["energy"]["total_j"] > 0


def test_faults_are_given_as_options(run: Any, file: str) -> None:
    plain = json.loads(run("emulate", file, "--json").stdout)
    slow = json.loads(run("emulate", file, "--slow", "d1=0.5", "--lossy", "d0,d1=0.2", "--json").stdout)
    assert slow["step_time_s"] > plain["step_time_s"]
    assert sum(link["resent_bytes"] for link in slow["links"]) > 0
    dead = run("emulate", file, "--dead", "d2=0.5")
    assert dead.exit_code == 0, dead.output
    assert "the step is lost with d2" in dead.stdout


def test_a_trace_is_written(run: Any, file: str, tmp_path: Path) -> None:
    assert run("emulate", file, "--trace", str(tmp_path / "trace.json")).exit_code == 0
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--slow", "d7=0.5"], 3, "there is no device 'd7'"),
        (["--slow", "d1"], 3, "such as d1=0.5"),
        (["--dead", "d1=soon"], 3, "such as d1=0.5"),
        (["--lossy", "d0,d1=1"], 3, "/lossy_links/0/loss"),
        (["--number-format", "fp16"], 2, "--number-format"),
        (["--model", "bapipe_executor.models.vgg16:tiny", "--number-format", "int3"], 3, "no number format 'int3'"),
        (["--model", "bapipe_executor.models.vgg16:tiny"], 3, "not of this network"),
    ],
)
def test_what_cannot_be_is_said(run: Any, file: str, arguments: list[str], code: int, text: str) -> None:
    result = run("emulate", file, *arguments)
    assert result.exit_code == code, result.output
    assert text in " ".join(result.output.split())


def test_a_network_is_trained_on_the_boards(run: Any, write: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A network and data of one's own, from the working folder."""
    (tmp_path / "own_network.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    layers = [linear("first", 4, 8), relu("relu", 8), linear("second", 8, 2)]
    plan = plan_on(fpga(on_chip_bytes=2500), layers=layers, stages=[("first",), ("relu",), ("second",)])
    path = write("plan.json", json.loads(to_json(plan)))
    arguments = ["--model", "own_network:model", "--loss", "own_network:loss", "--steps", "3", "--learning-rate", "0.1"]
    result = run("emulate", path, *arguments, "--json")
    assert result.exit_code == 0, result.output
    losses = json.loads(result.stdout)["losses"]
    assert len(losses) == 3
    assert losses[0] > losses[1] > losses[2]


NETWORK = """
import torch
from torch import nn

from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel


def model():
    torch.manual_seed(1)
    layers = {"first": nn.Linear(4, 8), "relu": nn.ReLU(), "second": nn.Linear(8, 2)}
    return LayeredModel(layers, {"first": ["x"], "relu": ["first"], "second": ["relu"]}, inputs=["x"], output="second")


def model_data(size):
    torch.manual_seed(2)
    x = torch.randn(size, 4)
    for _ in range(5):
        yield Batch({"x": x}, x[:, :2])


def loss():
    return nn.MSELoss()
"""
