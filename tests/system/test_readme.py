"""The README tells the truth: its commands run word for word, and print what it says they print.

`make readme` writes the output of its sessions anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
WALL_TIME = re.compile(r"\d+\.\d+ s$")
CONSOLE = re.compile(r"^```console\n\$ (.*)\n((?:.*\n)*?)```$", re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def lines(text: str) -> list[str]:
    """Without trailing space, and without the wall time of a search, which differs from run to run."""
    return [WALL_TIME.sub("_ s", line.rstrip()) for line in text.strip().splitlines()]


def run(command: list[str], folder: Path) -> str:
    """What `command` prints, with `bapipe` on the path and no terminal; it must end well."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"PATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def session(command: str, folder: Path) -> str:
    """A command and what it prints, as the README shows them."""
    printed = "\n".join(line.rstrip() for line in run(["bash", "-c", command], folder).strip().splitlines())
    return f"```console\n$ {command}\n{printed}\n```"


@pytest.mark.skipif("BAPIPE_WRITE_README" not in os.environ, reason="`make readme` does this")
def test_write_the_sessions_anew(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")

    README.write_text(CONSOLE.sub(lambda found: session(found[1], tmp_path), text), encoding="utf-8")


def test_the_session_prints_what_it_says(tmp_path: Path) -> None:
    shown = CONSOLE.findall(README.read_text(encoding="utf-8"))

    assert len(shown) == len(blocks("console")) > 0
    for command, expected in shown:
        assert lines(run(["bash", "-c", command], tmp_path)) == lines(expected), "`make readme` writes it anew"


def test_the_python_example_runs(tmp_path: Path) -> None:
    first, _ = blocks("python")

    assert run([sys.executable, "-c", first], tmp_path).startswith("optimal ")


def test_the_python_example_of_faults_prints_what_it_says(tmp_path: Path) -> None:
    _, second = blocks("python")

    assert [run([sys.executable, "-c", second], tmp_path)] == blocks("text")


def test_ci_runs_the_commands_of_the_readme() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()

    for block in blocks("sh"):
        assert set(block.splitlines()) <= set(ci)


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (ROOT / target).exists(), target
