"""Standard streams that are closed, full, endless, or in an encoding without most of Unicode; and a hasty Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PLAN = ("vgg16", "1xV100-16G", "--batch", "1", "--schedules", "gpipe")


def shell(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """`script` in a shell, in which `bapipe` is the command."""
    define = f'bapipe() {{ "{sys.executable}" -m bapipe_cli "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", define + script],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", ["plan - 2xreference --batch 4", "simulate -"])
def test_stdin_that_is_closed(command: str, tmp_path: Path) -> None:
    result = shell(f"bapipe {command} <&-", tmp_path)

    assert result.returncode == 3
    assert b"[unreadable_file]" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_stdin_without_an_end(tmp_path: Path) -> None:
    result = shell("bapipe plan - 2xreference --batch 4 < /dev/zero", tmp_path)

    assert result.returncode == 3
    assert b"[file_too_large]" in result.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("form", ["", "--json"])
def test_closed_streams_leave_the_file_whole(closed: str, form: str, tmp_path: Path) -> None:
    result = shell(f"bapipe plan {' '.join(PLAN)} {form} -o plan.json {closed}", tmp_path)

    assert (result.returncode, result.stderr) == (0, b"")
    assert json.loads((tmp_path / "plan.json").read_text())["status"] == "optimal"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [f"plan {' '.join(PLAN)}", f"plan {' '.join(PLAN)} --json", "--help", "--version"])
def test_a_full_disk_is_named(command: str, tmp_path: Path) -> None:
    result = shell(f"bapipe {command} > /dev/full", tmp_path)

    assert result.returncode == 2
    assert result.stderr == b"bapipe: No space left on device\n"


ENCODINGS = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_an_encoding_lacks_is_escaped(encoding: str, tmp_path: Path) -> None:
    time_s = {"device_kind": "reference", "microbatch_size": 1, "forward_s": 1.0, "backward_s": 2.0}
    names = ["Schicht Ω", "層\U0001f600"]
    profile = {"name": "two", "layers": [{"id": name, "times": [time_s]} for name in names]}
    (tmp_path / "two.json").write_text(json.dumps(profile))
    command = "bapipe plan two.json 2xreference --batch 4"

    text, document = (shell(f"{command} {form}", tmp_path, **ENCODINGS[encoding]) for form in ("", "--json"))

    assert (text.returncode, text.stderr) == (0, b"")
    assert b"Warnings" in text.stdout or b"Why" in text.stdout
    plan = json.loads(document.stdout)
    assert [layer["id"] for layer in plan["request"]["profile"]["layers"]] == names


@pytest.mark.parametrize("columns", ["0", "1", "-3", "wide", "9" * 5000])
def test_a_width_that_is_none(columns: str, bapipe: Any) -> None:
    result = bapipe("plan", *PLAN, env=os.environ | {"COLUMNS": columns})

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("optimal: ")
    assert "Warnings" in result.stdout


@pytest.mark.parametrize("form", ["", "--json"])
def test_a_reader_that_wants_one_line(form: str, tmp_path: Path) -> None:
    result = shell(f"bapipe plan {' '.join(PLAN)} {form} | head -1; exit ${{PIPESTATUS[0]}}", tmp_path)

    assert result.returncode in (0, 141)  # it depends on whether head left before the last line was written
    assert result.stderr == b""
    assert len(result.stdout.splitlines()) == 1


def hear_ctrl_c() -> None:
    """A shell that runs the tests in its background has them, and so their children, ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def hears_ctrl_c(process: subprocess.Popen[bytes]) -> bool:
    """Whether the interpreter has come so far that an interrupt does not end it there and then."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)  # type: ignore[index]
    return bool(caught & 1 << (signal.SIGINT - 1))


@pytest.mark.parametrize("after_s", [0.1, 0.2, 0.4, 0.8])
def test_ctrl_c_in_a_hurry_leaves_no_traceback(after_s: float, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bapipe_cli", "plan", "resnet50", "8xV100-16G:pcie3", "--batch", "512"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, preexec_fn=hear_ctrl_c, **pipes) as process:
        while not hears_ctrl_c(process):
            time.sleep(0.01)
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)

    assert process.returncode == 130
    assert b"Traceback" not in stderr
