"""The commands of the README and the documents that use the examples run, and what they show of a file is the file."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "docs/files.md", "docs/service.md", "docs/profiling.md")
COMMANDS = [
    command
    for document in DOCUMENTS
    for command in re.findall(r"^ {4}bapipe (.*examples/.*)$", (ROOT / document).read_text(encoding="utf-8"), re.M)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_with_examples_runs(command: str, bapipe: Any, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    result = bapipe(*shlex.split(command))

    assert result.returncode == 0, result.stderr


def test_both_formats_are_shown() -> None:
    assert any("graph.txt" in command for command in COMMANDS)
    assert any("tiny.json" in command for command in COMMANDS)


def test_the_files_shown_are_those_that_are_shipped() -> None:
    text = (ROOT / "docs/files.md").read_text(encoding="utf-8")

    shown = re.findall(r"`(examples/[^`]+)`:\n\n```json\n(.*?)```", text, re.DOTALL)

    assert [name for name, _ in shown] == ["examples/tiny.json", "examples/tiny.cluster.json"]
    for name, content in shown:
        assert content == (ROOT / name).read_text(encoding="utf-8")


def test_the_peak_that_is_worked_out_is_the_one_that_is_planned(bapipe: Any) -> None:
    files = (str(ROOT / "examples" / "tiny.json"), str(ROOT / "examples" / "tiny.cluster.json"))

    plan = json.loads(bapipe("plan", *files, "--batch", "16", "--json").stdout)

    assert plan["schedule"]["name"] == "1f1b"
    assert plan["stages"][0]["layers"] == ["embed", "block1"]
    assert plan["stages"][0]["peak_memory_bytes"] == 2_712_000_000
    assert "2,712 MB" in (ROOT / "docs/files.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    folder = (ROOT / document).parent
    for target in re.findall(r"\]\(([^)]+)\)", (ROOT / document).read_text(encoding="utf-8")):
        assert target.startswith("https://") or (folder / target).exists(), target
