"""Wrong usage ends with code 2 and says what is right; nothing is solved, nothing is written."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["plam"],
        ["plan"],
        ["plan", "vgg16"],
        ["plan", "vgg16", "4xV100-16G:pcie3"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "many"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "1.5"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "--objective", "fastest"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "--microbatch-sizes", "1;2"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "--microbatches", ""],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "--time-limit", "soon"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "--no-such-option"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "-o", "/no/such/folder/plan.json"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "--server", "localhost:8000"],
        ["plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "--server", "http://[::1"],
        ["compare", "vgg16", "--batch", "8"],
        ["simulate"],
        ["schema", "plam"],
        ["run", "plan.json", "--steps", "1", "--emulate-compute", "--hosts", "2", "--rendezvous", "host0:29500"],
        ["serve", "--port", "70000"],
    ],
)
def test_wrong_usage(arguments: list[str], run: Any) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert "Usage" in result.output or "Error" in result.output
    assert "Traceback" not in result.output


def test_a_file_that_cannot_be_written_is_named_before_the_search(run: Any) -> None:
    result = run("plan", "vgg16", "4xV100-16G:pcie3", "--batch", "8", "-o", "/no/such/folder/plan.json")

    assert "there is no folder '/no/such/folder'" in result.stderr


def test_help_lists_the_exit_codes(run: Any) -> None:
    assert "4 infeasible" in " ".join(run("--help").stdout.split())
