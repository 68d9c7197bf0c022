"""The images: their Dockerfiles are clean, and what they run works in a process that knows nothing else."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bapipe.formats import to_json
from bapipe_api import Settings
from bapipe_api.database import Database
from bapipe_api.keys import Keys
from bapipe_api.migrate import migrate
from serving.postgres import Cluster

ROOT = Path(__file__).parents[2]
SERVICE = ("api", "worker")
IMAGES = (*SERVICE, "executor")
TOOLS = Path(sys.executable).parent

Instruction = tuple[str, str]


def tool(name: str) -> str | None:
    return shutil.which(name, path=str(TOOLS)) or shutil.which(name)


def dockerfile(image: str) -> Path:
    return ROOT / "docker" / image / "Dockerfile"


def read(image: str) -> list[Instruction]:
    """The Dockerfile's instructions, each with its arguments in one line."""
    lines = [line for line in dockerfile(image).read_text().splitlines() if line.strip() and not line.startswith("#")]
    words = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in words)]


def argument(image: str, wanted: str) -> str:
    """The arguments of the only such instruction of the last stage."""
    instructions = read(image)
    start = max(place for place, (name, _) in enumerate(instructions) if name == "FROM")
    (found,) = [rest for name, rest in instructions[start:] if name == wanted]
    return found


@pytest.mark.skipif(tool("hadolint") is None, reason="hadolint is not installed")
@pytest.mark.parametrize("image", IMAGES)
def test_the_linter_has_nothing_to_say(image: str) -> None:
    subprocess.run([str(tool("hadolint")), "--failure-threshold", "style", str(dockerfile(image))], check=True)


@pytest.mark.parametrize("image", IMAGES)
def test_it_runs_as_a_user_without_a_name_and_without_rights(image: str) -> None:
    user, group = argument(image, "USER").split(":")
    assert int(user) >= 1000
    assert int(group) >= 1000


@pytest.mark.parametrize("image", IMAGES)
def test_what_is_copied_is_there_and_not_ignored(image: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for name, rest in read(image):
        if name == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored


@contextmanager
def container(
    image: str, folder: Path, **settings: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], bool]]]:
    """What the image runs, with the image's environment and these settings and no other; and its health check."""
    environment = environment_of(image, folder) | settings
    assert json.loads(argument(image, "ENTRYPOINT")) == ["tini", "--"]
    process = subprocess.Popen(_command(argument(image, "CMD")), env=environment, cwd=folder)
    check = _command(argument(image, "HEALTHCHECK").partition(" CMD ")[2])

    def healthy() -> bool:
        return subprocess.run(check, env=environment, capture_output=True, check=False).returncode == 0

    try:
        yield process, healthy
    finally:
        process.kill()
        process.wait()


def environment_of(image: str, folder: Path) -> dict[str, str]:
    """The image's, with `folder` for its volume and these programs for its own."""
    environment = dict(pair.split("=", 1) for pair in argument(image, "ENV").split())
    environment = {name: value.replace("/data", str(folder)) for name, value in environment.items()}
    return environment | {"PATH": f"{TOOLS}{os.pathsep}/usr/bin:/bin"}


def _command(text: str) -> list[str]:
    program, *arguments = json.loads(text)
    return [str(TOOLS / program), *arguments]


def becomes_healthy(process: subprocess.Popen[bytes], healthy: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not healthy():
        assert process.poll() is None
        assert time.monotonic() < deadline


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def make_key(url: str) -> None:
    with Database(Settings(database_url=url).url) as database:
        migrate(database)
        Keys(database).create("me", ["read"])


def test_the_service_starts_becomes_healthy_and_stops(tmp_path: Path) -> None:
    make_key(f"sqlite:///{tmp_path}/plans.sqlite3")
    with container("api", tmp_path, BAPIPE_PORT=free_port()) as (process, healthy):
        becomes_healthy(process, healthy)
        process.terminate()
        process.wait(30)
        assert not healthy()


@pytest.mark.xdist_group("postgres")
def test_service_and_worker_on_postgresql(tmp_path: Path, postgres: Cluster) -> None:
    url = postgres.database()
    make_key(url)
    with ExitStack() as stack:
        worker, works = stack.enter_context(container("worker", tmp_path, BAPIPE_DATABASE_URL=url))
        api = container("api", tmp_path, BAPIPE_DATABASE_URL=url, BAPIPE_PORT=free_port())
        becomes_healthy(worker, works)
        becomes_healthy(*stack.enter_context(api))
        worker.terminate()
        assert worker.wait(30) == 0
        assert not works()


@pytest.mark.xdist_group("executor workers")
def test_the_executor_trains(tmp_path: Path) -> None:
    """With the options of the job, but those for several hosts; a single rank, since each takes seconds to start."""
    pytest.importorskip("torch", reason="the executor needs torch: install bapipe[executor]")
    from bapipe_executor.models.gpt2 import tiny
    from harness.plans import make_plan

    plan = make_plan(tiny(), (tiny().names,), ((0,),), (("0F0", "0B0", "0F1", "0B1"),), 2, name="1f1b")
    (tmp_path / "plan.json").write_text(to_json(plan), encoding="utf-8")
    job = next(manifest for _, manifest in manifests() if manifest["kind"] == "Job")
    program, command, path, *options = job["spec"]["template"]["spec"]["containers"][0]["args"]
    options = [option for option in options if not option.startswith(("--host", "--rendezvous", "--steps"))]
    done = subprocess.run(
        [TOOLS / program, command, Path(path).name, *options, "--steps=1"],
        env=environment_of("executor", tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 step; loss ")


def manifests() -> list[tuple[str, dict[str, Any]]]:
    paths = [*sorted((ROOT / "docker" / "kubernetes").glob("*.yaml")), ROOT / "docker" / "executor" / "job.yaml"]
    return [(path.name, document) for path in paths for document in yaml.safe_load_all(path.read_text())]


@pytest.mark.parametrize(("name", "manifest"), manifests(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_manifest_is_valid(name: str, manifest: dict[str, Any]) -> None:
    import kubernetes_validate

    kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_every_pod_has_as_few_rights_as_can_be() -> None:
    pods = [one["spec"]["template"]["spec"] for _, one in manifests() if one["kind"] in ("Deployment", "Job")]
    assert len(pods) == len(IMAGES)
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (only,) = pod["containers"]
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == argument(
            only["name"], "USER"
        )
        assert {"requests", "limits"} <= only["resources"].keys()
        assert ("livenessProbe" in only) == (only["name"] in SERVICE)


def test_the_composition_is_valid() -> None:
    path = ROOT / "docker" / "compose.yaml"
    check = [str(tool("check-jsonschema")), "--builtin-schema", "vendor.compose-spec", str(path)]
    subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
    services = yaml.safe_load(path.read_text())["services"]
    assert set(services) == {"api", "worker", "postgres"}
    assert services["worker"]["deploy"]["replicas"] == 2
    for name in SERVICE:
        assert (ROOT / "docker" / services[name]["build"]["context"] / services[name]["build"]["dockerfile"]).exists()
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
