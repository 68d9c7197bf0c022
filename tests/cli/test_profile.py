"""`bapipe profile`: a profile file that can be planned, and clear words where there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="bapipe profile needs torch: install bapipe[executor]")

GPT2 = "bapipe_executor.models.gpt2:tiny"


def test_a_measured_profile_can_be_planned(run: Callable[..., Any], cluster: Any, write: Any, tmp_path: Path) -> None:
    target = tmp_path / "profile.json"

    result = run("profile", GPT2, "--repeats", "1", "--device-kind", "reference", "-o", str(target))

    assert result.exit_code == 0, result.output
    assert "By kind of layer, a micro-batch of 4" in result.stdout
    planned = run("plan", str(target), write("cluster.json", cluster), "--batch", "8", "--json")
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["schedule"]["num_microbatches"] >= 1


def test_a_computed_profile_is_for_the_device_named(run: Callable[..., Any]) -> None:
    result = run("profile", GPT2, "--analytic", "H100-80G", "--microbatch-sizes", "2", "--json")

    made = json.loads(result.stdout)
    assert {time["device_kind"] for layer in made["layers"] for time in layer["times"]} == {"H100"}
    assert made["name"] == "gpt2-tiny"


def test_seventy_billion_parameters_take_less_than_two_gigabytes(tmp_path: Path) -> None:
    command = ["-m", "bapipe_cli", "profile", "bapipe_executor.models.llama:full", "--analytic", "H100"]
    watched = (
        "import resource, subprocess, sys;"
        "subprocess.run([sys.executable, *sys.argv[1:]], check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )

    result = subprocess.run(
        [sys.executable, "-c", watched, *command, "--microbatch-sizes", "1", "-o", str(tmp_path / "llama.json")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "163 layers, 131 GiB of parameters" in result.stdout
    assert int(result.stdout.splitlines()[-1]) * 1024 < 2e9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt2"], "write module:function"),
        (["no_such_module:tiny"], "module 'no_such_module' cannot be imported"),
        (["bapipe_executor.models.gpt2:tinny"], "did you mean 'tiny'?"),
        (["bapipe_executor.models.gpt2:TOKENS"], "is no function but int"),
        (["bapipe_executor.models.gpt2:gpt2"], "say with --data which batches"),
        ([GPT2, "--data", "bapipe_executor.models.gpt2:tiny"], "tiny failed: TypeError"),
        ([GPT2, "--analytic", "H1000"], "did you mean 'H100'?"),
        ([GPT2, "--analytic", "VCU118"], "no peak FLOP/s for fp32"),
    ],
)
def test_what_cannot_be_profiled_is_said(run: Callable[..., Any], arguments: list[str], message: str) -> None:
    result = run("profile", *arguments)

    assert result.exit_code == 3
    assert message in result.stderr


def test_without_cuda_the_other_ways_are_named(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    assert "--analytic KIND" in run("profile", GPT2, "--device", "cuda").stderr


def test_without_torch_the_extra_is_named(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torch", "bapipe_executor")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)

    result = run("profile", GPT2)

    assert result.exit_code == 2
    assert "install bapipe[executor]" in result.stderr


@pytest.mark.parametrize("sizes", ["0", "1,x", "-2"])
def test_sizes_are_positive_numbers(run: Callable[..., Any], sizes: str) -> None:
    assert run("profile", GPT2, "--microbatch-sizes", sizes).exit_code == 2
