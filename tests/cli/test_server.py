"""`--server`: what a service answers is printed as what is found here, and ends with the same exit codes."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bapipe.formats import to_json
from bapipe_cli.app import app
from bapipe_client import Client, JobSummary
from judges.boards import fpga
from judges.emulated import plan_on
from serving.processes import Service, end, start, until

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAPH = str(EXAMPLES / "tiny.graph.txt")
TINY = (str(EXAMPLES / "tiny.json"), str(EXAMPLES / "tiny.cluster.json"))
pytestmark = pytest.mark.xdist_group("a service for the command")  # which takes seconds to start

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


@pytest.mark.parametrize("name", ["1f1b-so", "fbp-as", "pipedream", "interleaved", "zb-h1"])
def test_a_plan_is_simulated_as_here(name: str, run: Any, url: str, tmp_path: Path) -> None:
    """Without a flush several steps are drawn, of two engines two rows."""
    file, html, trace = (str(tmp_path / each) for each in ("plan.json", "page.html", "trace.json"))
    Path(file).write_text(run("schedules", "--plan", name, "--stages", "4", "--microbatches", "8").stdout)
    arguments = ["simulate", file, "--html", html, "--trace", trace, "--width", "90"]
    printed = []
    for place in ([], ["--server", url]):
        result = run(*arguments, *place)
        printed.append((result.exit_code, result.output, Path(html).read_text(), Path(trace).read_text()))
    assert printed[0] == printed[1]
    assert printed[0][0] == 0
    assert run("simulate", file, "--json", "--server", url).stdout == run("simulate", file, "--json").stdout


def test_what_is_wrong_with_a_plan_is_said_as_here(run: Any, url: str, write: Any, tmp_path: Path) -> None:
    plan = json.loads(run("schedules", "--plan", "1f1b", "--stages", "2", "--microbatches", "3").stdout)
    stale = copy.deepcopy(plan)
    stale["prediction"]["step_time_s"] *= 2
    short = copy.deepcopy(plan)
    short["request"]["cluster"]["kinds"][0]["memory_bytes"] = 1
    endless = tmp_path / "orders.csv"
    endless.write_text("0B0,0F0,0F1,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n")
    cases = (["simulate", write("stale.json", stale)], ["simulate", write("short.json", short)])
    codes = []
    for arguments in (*cases, ["simulate", write("plan.json", plan), "--orders", str(endless)]):
        here, there = run(*arguments), run(*arguments, "--server", url)
        assert (there.exit_code, there.output) == (here.exit_code, here.output)
        codes.append(there.exit_code)
    assert codes == [0, 3, 3]


def test_a_plan_is_emulated_as_here(run: Any, url: str, write: Any, tmp_path: Path) -> None:
    file = write("plan.json", json.loads(to_json(plan_on(fpga(on_chip_bytes=2500, fifo_bytes=1000)))))
    trace = tmp_path / "trace.json"
    for more in (
        [],
        ["--json", "--slow", "d1=0.5", "--lossy", "d0,d1=0.2"],
        ["--dead", "d2=0.5"],
        ["--slow", "d7=0.5"],
        ["--trace", str(trace)],
    ):
        here = run("emulate", file, *more)
        text = trace.read_text() if trace.exists() else ""
        there = run("emulate", file, *more, "--server", url)
        assert (there.exit_code, there.output) == (here.exit_code, here.output)
        assert here.exit_code == (3 if "d7=0.5" in more else 0)
    assert text == trace.read_text()
    gpus = write("gpus.json", json.loads(run("schedules", "--plan", "1f1b").stdout))
    assert run("emulate", gpus, "--server", url).output == run("emulate", gpus).output
    trained = run("emulate", file, "--model", "bapipe_executor.models.vgg16:tiny", "--server", url)
    assert trained.exit_code == 2
    assert "--model" in trained.stderr


@pytest.mark.parametrize("command", ["plan", "compare", "simulate", "emulate"])
def test_ctrl_c_cancels_the_job(command: str, scripted: Service, profile: Any, cluster: Any, write: Any) -> None:
    plan = json.loads(to_json(plan_on(fpga(on_chip_bytes=2500, fifo_bytes=1000))))
    plan["request"]["profile"]["name"] = "spin"
    arguments = [command, write("plan.json", plan)]
    if command in ("plan", "compare"):
        files = write("profile.json", profile | {"name": "spin"}), write("cluster.json", cluster)
        arguments = [command, *files, "--batch", "4", "--time-limit", "600"]
    with Client(scripted.url) as client:
        listed = {"simulate": client.simulations, "emulate": client.emulations}.get(command, client.plans)

        def begun() -> list[JobSummary]:
            return list(listed(states=["running"]))

        with subprocess.Popen(
            [sys.executable, "-m", "bapipe_cli", *arguments, "--server", scripted.url], stderr=subprocess.PIPE
        ) as process:
            (job,) = until(begun)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
        assert {each.state for each in listed() if each.id == job.id} == {"cancelled"}


@pytest.fixture
def hanging(write: Any) -> str:
    """A plan whose simulation by a scripted service does not end."""
    plan = json.loads(to_json(plan_on(fpga(on_chip_bytes=2500, fifo_bytes=1000))))
    plan["request"]["profile"]["name"] = "spin"
    path: str = write("hanging.json", plan)
    return path


def simulating(plan: str, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bapipe_cli", "simulate", plan, "--server", url]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)


def test_the_second_ctrl_c_leaves_nothing_behind(scripted: Service, hanging: str) -> None:
    with Client(scripted.url) as client, simulating(hanging, scripted.url) as process:
        (job,) = until(lambda: list(client.simulations(states=["running"])))
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        until(lambda: b"Ctrl-C again" in process.stderr.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert until(lambda: client.simulation_job(job.id).state == "cancelled")


def test_a_service_that_ends_midway(tmp_path: Path, hanging: str) -> None:
    service = start(tmp_path / "midway", scripted=True)
    with Client(service.url) as client, simulating(hanging, service.url) as process:
        assert until(lambda: list(client.simulations(states=["running"])))
        end(service)
        out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (6, b"")
    assert said.startswith(b"bapipe: GET ")
    assert b"Traceback" not in said


def everywhere(request_file: str, plan: str) -> list[list[str]]:
    return [
        ["simulate", plan],
        ["emulate", plan],
        ["plan", *TINY, "--batch", "16"],
        ["compare", *TINY, "--batch", "16"],
        ["validate", request_file],
        ["import", GRAPH, "--profile-batch", "32"],
        ["export", "0" * 32, "csv"],
        ["presets"],
        ["presets", "V100-16G"],
    ]


def test_a_service_that_is_not_there_or_asks_for_a_key(
    run: Any, url: str, request_file: str, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write("plan.json", json.loads(run("schedules", "--plan", "1f1b").stdout))
    monkeypatch.delenv("BAPIPE_API_KEY")
    monkeypatch.setattr("bapipe_client._retries.RetryPolicy.wait_s", lambda *_: None)
    for arguments in everywhere(request_file, plan):
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
