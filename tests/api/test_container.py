"""The image of the service: its Dockerfile is clean, and what it runs works in a process that knows nothing else."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")

Instruction = tuple[str, str]


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    """The Dockerfile's instructions, each with its arguments in one line."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    words = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in words)]


def last_stage(instructions: list[Instruction]) -> list[Instruction]:
    start = max(place for place, (name, _) in enumerate(instructions) if name == "FROM")
    return instructions[start:]


def argument(instructions: list[Instruction], wanted: str) -> str:
    """The arguments of the only such instruction of the last stage."""
    (found,) = [rest for name, rest in last_stage(instructions) if name == wanted]
    return found


def environment(instructions: list[Instruction]) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in argument(instructions, "ENV").split())


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_the_linter_has_nothing_to_say() -> None:
    subprocess.run([str(HADOLINT), "--failure-threshold", "style", str(DOCKERFILE)], check=True)


def test_it_runs_as_a_user_without_a_name_and_without_rights(instructions: list[Instruction]) -> None:
    user, group = argument(instructions, "USER").split(":")
    assert int(user) >= 1000
    assert int(group) >= 1000


def test_what_is_copied_is_there_and_not_ignored(instructions: list[Instruction]) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name, rest in instructions:
        if name == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored


@pytest.fixture
def container(
    instructions: list[Instruction], tmp_path: Path
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """What the image runs, with the image's environment and no other."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = environment(instructions)
    settings["BAPIPE_DATABASE_URL"] = settings["BAPIPE_DATABASE_URL"].replace("/data", str(tmp_path))
    settings |= {"PATH": "/usr/bin:/bin", "BAPIPE_PORT": str(port), "BAPIPE_HOST": "127.0.0.1"}
    tini, dashes, python, *arguments = json.loads(argument(instructions, "ENTRYPOINT"))
    assert (tini, dashes, python) == ("tini", "--", "python")
    process = subprocess.Popen([sys.executable, *arguments], env=settings, cwd=tmp_path)
    yield process, settings
    process.kill()
    process.wait()


def test_it_starts_becomes_healthy_and_stops(
    instructions: list[Instruction], container: tuple[subprocess.Popen[bytes], dict[str, str]]
) -> None:
    process, settings = container
    _, _, check = argument(instructions, "HEALTHCHECK").partition(" CMD ")
    command = [sys.executable, *json.loads(check)[1:]]

    def healthy() -> bool:
        return subprocess.run(command, env=settings, capture_output=True, check=False).returncode == 0

    deadline = time.monotonic() + 60
    while not healthy():
        assert process.poll() is None
        assert time.monotonic() < deadline
    process.terminate()
    process.wait(30)
    assert not healthy()
