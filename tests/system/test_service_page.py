"""What docs/service.md and the README show of the service runs word for word, one thing after the other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:^ {4}.*\n|^\n(?= {4}))+", re.M)
ADDRESS = "http://127.0.0.1:8000"
STARTS_OR_INSTALLS = re.compile(r"^(pip install|bapipe serve|bapipe keys create).*\n", re.M)

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def blocks(document: str) -> list[str]:
    """The indented blocks of a document that call the service, without what starts or installs it."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = [re.sub(r"^ {4}", "", block, flags=re.M).strip() + "\n" for block in BLOCK.findall(text)]
    kept = [STARTS_OR_INSTALLS.sub("", block) for block in found]
    return [block for block in kept if ADDRESS in block or block.startswith("ID=")]


def run(block: str, folder: Path, url: str) -> str:
    """What a block prints: Python, or commands of a shell."""
    block = block.replace(ADDRESS, url)
    program = [sys.executable, "-c"] if block.startswith("from ") else ["bash", "-euc"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*program, block], cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (block, done.stderr)
    return done.stdout


@pytest.mark.parametrize(("document", "count"), [("docs/service.md", 5), ("README.md", 3)])
def test_what_is_shown_runs(document: str, count: int, service: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shown = blocks(document)
    assert len(shown) == count
    printed = [run(block, tmp_path, service) for block in shown]
    assert printed[0].startswith("optimal: 1f1b-so over 4 stages")
    if document == "docs/service.md":
        assert json.loads((tmp_path / "answer.json").read_text())["state"] == "succeeded"
        assert (tmp_path / "timeline.html").read_text().startswith("<!doctype html>")
        assert printed[-2] == "the request can be planned\n"
        assert re.fullmatch(r"optimal 0\.0897\d* 0\.0\n", printed[-1])
    else:
        assert json.loads(printed[1])["state"] == "succeeded"


def test_the_request_that_is_shipped_is_the_one_that_is_written(bapipe: Any, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    arguments = ("examples/tiny.json", "examples/tiny.cluster.json", "--batch", "16", "--request-only")
    written = bapipe("plan", *arguments).stdout
    assert written == (ROOT / "examples" / "tiny.request.json").read_text(encoding="utf-8")
