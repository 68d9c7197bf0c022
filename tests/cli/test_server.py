"""`--server`: what a service answers is printed as what is found here, and ends with the same exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bapipe_cli.app import app
from bapipe_client import Client, JobSummary
from serving.processes import Service, end, start, until

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAPH = str(EXAMPLES / "tiny.graph.txt")
TINY = (str(EXAMPLES / "tiny.json"), str(EXAMPLES / "tiny.cluster.json"))
HERE_ONLY = ("run", "profile", "probe", "calibrate", "serve", "worker", "migrate", "keys", "schema", "schedules")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service as users start it, which asks for a key; the key is in the environment."""
    folder = tmp_path_factory.mktemp("service")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAPIPE_DATABASE_URL", f"sqlite:///{folder}/plans.sqlite3")
        patch.setenv("BAPIPE_API_KEY", CliRunner().invoke(app, ["keys", "create", "--name", "me"]).stdout.strip())
        service = start(folder)
        yield service.url
        end(service)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose searches do what the profile's name says."""
    service = start(tmp_path_factory.mktemp("scripted"), scripted=True)
    yield service
    end(service)


@pytest.fixture(scope="module")
def request_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A request that can be planned."""
    path = tmp_path_factory.mktemp("request") / "request.json"
    command = [sys.executable, "-m", "bapipe_cli", "plan", *TINY, "--batch", "16", "--request-only", "-o", str(path)]
    subprocess.run(command, check=True)
    return str(path)


COMMANDS: dict[str, list[str]] = {
    "presets": ["presets"],
    "presets with sources": ["presets", "--sources"],
    "presets as JSON": ["presets", "--json"],
    "a device": ["presets", "V100-16G"],
    "a link": ["presets", "nvlink2", "--json"],
    "an example": ["presets", "vgg16"],
    "a cluster": ["presets", "4xV100-pcie3", "--json"],
    "import": ["import", GRAPH, "--profile-batch", "32"],
    "import as JSON": ["import", GRAPH, "--profile-batch", "32", "--name", "mine", "--json"],
    "import of one's own": ["import", TINY[0], "--json"],
    "compare": ["compare", "vgg16", "2xV100-16G:pcie3", "2xV100-16G:nvlink2", "--batch", "8", "--schedules", "1f1b"],
    "compare as JSON": ["compare", *TINY, "--batch", "16", "--json"],
    "no such preset": ["presets", "V1000"],
    "no mini-batch": ["import", GRAPH],
    "no such format": ["import", GRAPH, "--format", "onnx", "--json"],
    "no profile": ["import", TINY[1], "--json"],
    "no such file": ["import", "absent.json"],
    "a wrong option": ["compare", *TINY, "--batch", "0", "--json"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_service_says_what_is_said_here(name: str, run: Any, url: str) -> None:
    here, there = run(*COMMANDS[name]), run(*COMMANDS[name], "--server", url)

    assert (there.exit_code, there.stdout, there.stderr) == (here.exit_code, here.stdout, here.stderr)
    assert here.output


def test_a_request_is_checked_as_here(run: Any, url: str, request_file: str, write: Any) -> None:
    for more in ([], ["--json"]):
        here, there = run("validate", request_file, *more), run("validate", request_file, *more, "--server", url)
        assert (there.exit_code, there.output) == (here.exit_code, here.output) == (0, here.output)
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    wrong = write("wrong.json", request | {"solver": "milp"})
    here, there = run("validate", wrong, "--json"), run("validate", wrong, "--json", "--server", url)
    assert (there.exit_code, there.output) == (here.exit_code, here.output)
    assert there.exit_code == 3
    assert run("validate", TINY[0]).stderr == "/: this is a BaPipe model profile, not a plan request [wrong_document]\n"


def test_the_limits_of_the_service_are_said(run: Any, url: str, request_file: str, write: Any) -> None:
    request = json.loads(Path(request_file).read_text(encoding="utf-8"))
    long = write("long.json", request | {"time_limit_s": 1e6})

    assert run("validate", long).exit_code == 0
    refused = run("validate", long, "--server", url)
    assert refused.exit_code == 3
    assert "/time_limit_s" in refused.stderr


def test_a_plan_of_the_service_is_exported_by_its_id(run: Any, url: str, request_file: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert run("plan", *TINY, "--batch", "16", "--server", url, "-o", str(file)).exit_code == 0
    with Client(url) as client:
        (plan, *_) = client.plans(page_size=1)
    for form in ("json", "html", "csv", "trace"):
        here, there = run("export", str(file), form), run("export", plan.id, form, "--server", url)
        assert (here.exit_code, there.exit_code) == (0, 0)
        assert here.stdout == there.stdout != ""
    assert run("export", plan.id, "csv", "--server", url, "-o", str(tmp_path / "orders.csv")).stdout == ""
    assert run("simulate", str(file), "--orders", str(tmp_path / "orders.csv")).exit_code == 0
    absent = run("export", str(file), "csv", "--server", url)
    assert absent.exit_code == 3
    assert "by its id" in absent.stderr


def test_nothing_is_exported_of_what_fits_nowhere_or_is_not_found_yet(
    run: Any, scripted: Service, profile: Any, cluster: Any, write: Any
) -> None:
    files = write("profile.json", profile), write("cluster.json", cluster)
    assert run("plan", *files, "--batch", "4", "--server", scripted.url).exit_code == 4
    with Client(scripted.url) as client:
        (plan, *_) = client.plans(page_size=1)
        assert run("export", plan.id, "csv", "--server", scripted.url).exit_code == 4
        job = client.submit(profile=profile | {"name": "spin"}, cluster=cluster, batch_size=4)
        early = run("export", job.id, "csv", "--server", scripted.url)
        job.cancel()
    assert early.exit_code == 6
    assert "nothing to export yet" in early.stderr


@pytest.mark.parametrize("command", ["plan", "compare"])
def test_a_time_limit_without_a_plan(
    command: str, run: Any, scripted: Service, profile: Any, cluster: Any, write: Any
) -> None:
    files = write("profile.json", profile | {"name": "spin"}), write("cluster.json", cluster)

    result = run(command, *files, "--batch", "4", "--time-limit", "0.5", "--server", scripted.url)

    assert result.exit_code == 5
    assert result.stderr.startswith("bapipe: ")


@pytest.mark.parametrize("command", ["plan", "compare"])
def test_ctrl_c_cancels_the_job(command: str, scripted: Service, profile: Any, cluster: Any, write: Any) -> None:
    files = write("profile.json", profile | {"name": "spin"}), write("cluster.json", cluster)
    arguments = [command, *files, "--batch", "4", "--time-limit", "600", "--server", scripted.url]
    with Client(scripted.url) as client:
        before = {plan.id for plan in client.plans()}

        def begun() -> list[JobSummary]:
            return [plan for plan in client.plans(states=["running"]) if plan.id not in before]

        with subprocess.Popen([sys.executable, "-m", "bapipe_cli", *arguments], stderr=subprocess.PIPE) as process:
            (plan,) = until(begun)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        assert client.get_plan(plan.id).state == "cancelled"


def everywhere(request_file: str) -> list[list[str]]:
    return [
        ["plan", *TINY, "--batch", "16"],
        ["compare", *TINY, "--batch", "16"],
        ["validate", request_file],
        ["import", GRAPH, "--profile-batch", "32"],
        ["export", "0" * 32, "csv"],
        ["presets"],
        ["presets", "V100-16G"],
    ]


def test_a_service_that_is_not_there_or_asks_for_a_key(
    run: Any, url: str, request_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BAPIPE_API_KEY")
    monkeypatch.setattr("bapipe_client._retries.RetryPolicy.wait_s", lambda *_: None)
    for arguments in everywhere(request_file):
        assert run(*arguments, "--server", "http://127.0.0.1:1").exit_code == 6
        assert run(*arguments, "--server", "localhost:8000").exit_code == 2
        assert run(*arguments, "--server", "").exit_code == 2
        refused = run(*arguments, "--server", url)
        assert refused.exit_code == 6
        assert "BAPIPE_API_KEY" in refused.stderr
        assert "Traceback" not in refused.output


@pytest.mark.parametrize("command", HERE_ONLY)
def test_what_cannot_be_done_there_has_no_such_option(command: str, run: Any) -> None:
    assert "--server" not in run(command, "--help").output
