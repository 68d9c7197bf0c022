"""Simulations and emulations on one process with SQLite: limits, restarts, what is kept, traces."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from bapipe.emulation import EmulationRequest
from bapipe.emulation.emulate import emulate
from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe.simulator import simulate
from bapipe.trace import chrome_trace
from bapipe_api.records import Progress
from bapipe_api.work import ReplayWork
from judges.misbehaving import hoard
from serving.asking import EMULATIONS, PLANS, SIMULATIONS, Subject
from serving.processes import Service, children, until

WAIT = {"Prefer": "wait=60"}
BOTH = pytest.mark.parametrize("subject", [SIMULATIONS, EMULATIONS], ids=lambda subject: subject.kind)
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")


def asked(url: str, subject: Subject, script: str = "fine", headers: dict[str, str] | None = None) -> httpx.Response:
    return httpx.post(url + subject.path, json=subject.asked(script), headers=headers or WAIT, timeout=90)


def codes(error: dict[str, Any]) -> list[str]:
    return [item["code"] for item in error["errors"]]


def test_a_replay_that_never_ends_is_stopped_and_the_job_says_so(start_service: Any) -> None:
    url = start_service(scripted=True, max_time_limit_s=1.0).url
    for subject in (SIMULATIONS, EMULATIONS):
        body = subject.asked("hang", time_limit_s=1.0)
        document = httpx.post(url + subject.path, json=body, headers=WAIT, timeout=90).json()
        assert (document["state"], codes(document["error"])) == ("timed_out", ["time_limit"])
        assert document[subject.kind] is None


def test_a_replay_without_memory_says_so(start_service: Any) -> None:
    url = start_service(scripted=True, max_search_memory_bytes=1).url
    for subject in (SIMULATIONS, EMULATIONS):
        document = asked(url, subject, "sleep").json()  # so that it is there to be measured
        assert (document["state"], codes(document["error"])) == ("failed", ["memory_limit"])
    assert httpx.get(url + "/readyz").status_code == 200


class Unwatched:
    """Nobody wants it to end."""

    def must_stop(self) -> bool:
        return False

    def report(self, progress: Progress) -> None:
        raise AssertionError("a replay has nothing to tell")


def test_a_replay_that_asks_for_memory_without_end_is_stopped() -> None:
    work = ReplayWork(hoard, time_limit_s=600.0, memory_limit_bytes=2**29)
    ending = work("", Unwatched())
    assert (ending.state, codes(json.loads(ending.error or ""))) == ("failed", ["memory_limit"])


@NEEDS_PROC
def test_a_replay_that_was_killed_with_the_service_is_done_again(start_service: Any) -> None:
    first: Service = start_service(scripted=True)
    location = asked(first.url, EMULATIONS, "sleep", {"Prefer": "respond-async"}).headers["location"]
    until(lambda: httpx.get(first.url + location).json()["state"] == "running")
    doing = children(first.process.pid)
    first.stop(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{child}/stat").exists() for child in doing))
    second: Service = start_service(scripted=True)
    document = httpx.get(second.url + location, headers=WAIT, timeout=90).json()
    assert (document["state"], document["attempts"]) == ("succeeded", 2)


def test_a_service_that_is_told_to_stop_puts_its_replays_back(start_service: Any, tmp_path: Path) -> None:
    service: Service = start_service(scripted=True)
    location = asked(service.url, EMULATIONS, "hang", {"Prefer": "respond-async"}).headers["location"]
    until(lambda: httpx.get(service.url + location).json()["state"] == "running")
    service.stop()
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        assert connection.execute("SELECT kind, state, attempt FROM jobs").fetchall() == [("emulation", "queued", 0)]


def test_as_many_of_each_kind_are_kept(start_service: Any) -> None:
    url = start_service(scripted=True, keep_plans=2).url
    plan = asked(url, PLANS).headers["location"]
    ended = [asked(url, SIMULATIONS).headers["location"] for _ in range(3)]
    assert [httpx.get(url + location).status_code for location in (plan, *ended)] == [200, 404, 200, 200]


def test_what_is_kept_of_each_kind_is_bounded(start_service: Any, tmp_path: Path) -> None:
    url = start_service(scripted=True, keep_bytes=1).url
    locations = [asked(url, subject).headers["location"] for subject in (SIMULATIONS, PLANS, SIMULATIONS)]
    assert [httpx.get(url + location).status_code for location in locations] == [404, 200, 200]
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        kept = "SELECT sum(length(request) + length(document)) FROM jobs JOIN results ON results.id = result_id"
        assert connection.execute(kept).fetchone() == connection.execute("SELECT sum(kept_bytes) FROM jobs").fetchone()


def test_traces_are_those_of_python(http: httpx.Client) -> None:
    simulated, emulated = SIMULATIONS.asked(), EMULATIONS.asked()
    plan, asked_for = parse(Plan, simulated), parse(EmulationRequest, emulated)
    expected = {
        SIMULATIONS: chrome_trace(plan, simulate(plan)),
        EMULATIONS: chrome_trace(asked_for.plan, emulate(asked_for.plan, asked_for.options).simulation),
    }
    for subject, body in ((SIMULATIONS, simulated), (EMULATIONS, emulated)):
        location = http.post(subject.path, json=body).headers["location"]
        response = http.get(f"{location}/trace").raise_for_status()
        assert response.text == expected[subject]
        assert f'filename="{subject.kind}-' in response.headers["content-disposition"]
        again = http.get(f"{location}/trace", headers={"If-None-Match": response.headers["etag"]})
        assert again.status_code == 304


@BOTH
def test_there_is_no_trace_of_what_is_not_there(scripted: Service, subject: Subject) -> None:
    location = asked(scripted.url, subject, "raise").headers["location"]
    response = httpx.get(f"{scripted.url}{location}/trace")
    assert (response.status_code, codes(response.json())) == (409, [f"no_{subject.kind}"])


def test_orders_that_wait_for_each_other_are_a_fault_of_the_job(http: httpx.Client) -> None:
    """It takes the replay to see that; all else that is wrong is refused at once."""
    body = SIMULATIONS.asked()
    first, second = body["schedule"]["orders"]
    body["schedule"]["orders"] = [[first[-1], *first[:-1]], second]
    document = http.post(SIMULATIONS.path, json=body).json()
    assert (document["state"], document["error"]["status"]) == ("failed", 422)
    assert set(codes(document["error"])) == {"deadlock"}


def test_faults_of_an_emulation_say_where_in_the_body(http: httpx.Client) -> None:
    body = EMULATIONS.asked()
    body["options"]["slow_boards"][0]["device"] = "board9"
    del body["plan"]["request"]["cluster"]["kinds"][0]["fpga"]
    refused = http.post(EMULATIONS.path, json=body)
    assert refused.status_code == 422
    assert {fault["pointer"] for fault in refused.json()["errors"]} == {
        "/options/slow_boards/0/device",
        "/plan/request/cluster/kinds/0/fpga",
    }
    small = EMULATIONS.asked()
    request = small["plan"]["request"]
    request["cluster"]["kinds"][0]["fpga"]["fifo_bytes"] = 100
    for layer in request["profile"]["layers"]:
        layer["streamable"] = True
    document = http.post(EMULATIONS.path, json=small).json()
    faults = document["error"]["errors"]
    assert {fault["pointer"] for fault in faults} == {"/plan/request/cluster/kinds/0/fpga/fifo_bytes"}


def test_too_long_a_plan_is_refused_with_its_place(start_service: Any) -> None:
    url = start_service(max_simulated_operations=3).url
    for subject, pointer in ((SIMULATIONS, "/schedule/orders"), (EMULATIONS, "/plan/schedule/orders")):
        refused = asked(url, subject)
        assert (refused.status_code, codes(refused.json())) == (422, ["too_large"])
        assert refused.json()["errors"][0]["pointer"] == pointer


def test_what_was_asked_is_kept_for_who_shares_an_answer(start_service: Any, tmp_path: Path) -> None:
    url = start_service().url
    asked(url, SIMULATIONS), asked(url, PLANS)
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        kept = dict(connection.execute("SELECT kind, request FROM jobs").fetchall())
    assert kept["plan"] == ""
    assert json.loads(kept["simulation"])["status"] == "feasible"
