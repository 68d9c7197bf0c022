"""`/v1/plans` over HTTP: real searches, and scripted ones where a test decides when they end."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from bapipe.check import check
from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe.problem import PlanRequest

PATIENCE_S = 60.0


def named(request: dict[str, Any], name: str, time_limit_s: float = 60.0) -> dict[str, Any]:
    """`request` under the name of a script."""
    return {**request, "profile": {**request["profile"], "name": name}, "time_limit_s": time_limit_s}


def until(condition: Callable[[], Any]) -> Any:
    """What `condition` returns as soon as it is true."""
    end = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
    return value


def states(folder: Path) -> list[str]:
    """The state of every plan in the service's database."""
    with closing(sqlite3.connect(folder / "plans.sqlite3")) as connection:
        return [row[0] for row in connection.execute("SELECT state FROM plans ORDER BY created_at")]


def kept(folder: Path) -> list[dict[str, Any]]:
    """Every plan in the service's database."""
    with closing(sqlite3.connect(folder / "plans.sqlite3")) as connection:
        return [
            json.loads(row[0])
            for row in connection.execute("SELECT plan FROM plans WHERE plan IS NOT NULL ORDER BY created_at")
        ]


def finished(url: str, location: str) -> dict[str, Any]:
    """The plan at `location` once it is no longer running."""

    def read() -> dict[str, Any] | None:
        document: dict[str, Any] = httpx.get(url + location).raise_for_status().json()
        return None if document["state"] in ("queued", "running") else document

    result: dict[str, Any] = until(read)
    return result


def test_a_plan_is_answered_and_kept(http: httpx.Client, request_json: dict[str, Any]) -> None:
    response = http.post("/v1/plans", json=request_json)
    assert response.status_code == 200
    document = response.json()
    assert document["state"] == "succeeded"
    assert document["error"] is None
    assert document["created_at"] <= document["finished_at"]
    assert response.headers["location"] == f"/v1/plans/{document['id']}"

    plan = parse(Plan, document["plan"])
    assert plan.request == parse(PlanRequest, request_json)
    assert check(plan) == []

    again = http.get(response.headers["location"])
    assert (again.status_code, again.json()) == (200, document)


def test_nothing_fits_is_an_answer(http: httpx.Client, request_json: dict[str, Any]) -> None:
    cluster = {**request_json["cluster"], "kinds": [{"name": "reference", "memory_bytes": 1000}]}
    document = http.post("/v1/plans", json={**request_json, "cluster": cluster}).json()
    assert document["state"] == "infeasible"
    assert document["plan"]["status"] == "infeasible"
    assert document["plan"]["explanation"]


@pytest.mark.parametrize("prefer", ["wait=0", "respond-async", "respond-async, wait=0"])
def test_who_will_not_wait_is_told_where_to_look(
    service: Any, http: httpx.Client, request_json: dict[str, Any], prefer: str
) -> None:
    response = http.post("/v1/plans", json=request_json, headers={"Prefer": prefer})
    assert response.status_code == 202
    assert response.json()["state"] in ("queued", "running")
    assert response.json()["plan"] is None
    assert int(response.headers["retry-after"]) >= 1
    assert finished(service.url, response.headers["location"])["state"] == "succeeded"


def test_a_wait_ends_and_the_search_goes_on(scripted: Any, request_json: dict[str, Any]) -> None:
    url = scripted.url
    response = httpx.post(url + "/v1/plans", json=named(request_json, "spin", 2.0), headers={"Prefer": "wait=1"})
    assert response.status_code == 202
    document = finished(url, response.headers["location"])
    assert document["state"] == "timed_out"
    assert [item["code"] for item in document["error"]["errors"]] == ["time_limit"]


def test_many_at_once_all_get_their_own(http: httpx.Client, request_json: dict[str, Any]) -> None:
    def plan(batch: int) -> int:
        response = http.post("/v1/plans", json={**request_json, "batch_size": batch}).raise_for_status()
        return int(response.json()["plan"]["request"]["batch_size"])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(plan, range(1, 17))) == list(range(1, 17))


def test_a_full_service_says_when_to_come_back_and_still_answers(
    start_service: Any, request_json: dict[str, Any]
) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1, max_queued_solves=1).url
    body = named(request_json, "spin")
    for _ in range(2):
        assert httpx.post(url + "/v1/plans", json=body, headers={"Prefer": "wait=0"}).status_code == 202
    refused = httpx.post(url + "/v1/plans", json=body)
    assert refused.status_code == 503
    assert [item["code"] for item in refused.json()["errors"]] == ["busy"]
    assert int(refused.headers["retry-after"]) >= 1
    assert httpx.get(url + "/livez").status_code == 200
    assert httpx.get(url + "/readyz").status_code == 200


def test_who_leaves_the_queue_frees_a_place(start_service: Any, tmp_path: Path, request_json: dict[str, Any]) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1, max_queued_solves=1).url
    first = httpx.post(url + "/v1/plans", json=named(request_json, "spin", 4.0), headers={"Prefer": "wait=0"})
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url + "/v1/plans", json=named(request_json, "spin", 1000.0), timeout=1.0)
    assert until(lambda: httpx.post(url + "/v1/plans", json=request_json, timeout=60).status_code == 200)
    assert finished(url, first.headers["location"])["state"] == "timed_out"
    assert states(tmp_path) == ["timed_out", "cancelled", "infeasible"]


def test_who_leaves_the_queue_has_left_it_at_once(
    start_service: Any, tmp_path: Path, request_json: dict[str, Any]
) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1, max_queued_solves=1).url
    body = named(request_json, "spin", 1000.0)
    assert httpx.post(url + "/v1/plans", json=body, headers={"Prefer": "wait=0"}).status_code == 202
    for left in range(1, 4):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url + "/v1/plans", json=body, timeout=0.5)
        until(lambda: states(tmp_path)[1:] == ["cancelled"] * left)  # noqa: B023  called before the next turn
    assert states(tmp_path)[0] == "running"
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        assert connection.execute("SELECT count(*) FROM plans WHERE request != ''").fetchone() == (1,)


def test_only_the_last_plans_are_kept(start_service: Any, request_json: dict[str, Any]) -> None:
    url = start_service(scripted=True, keep_plans=2).url
    running = httpx.post(url + "/v1/plans", json=named(request_json, "spin"), headers={"Prefer": "wait=0"})
    ended = [httpx.post(url + "/v1/plans", json=request_json).raise_for_status() for _ in range(4)]
    answers = [httpx.get(url + response.headers["location"]).status_code for response in [running, *ended]]
    assert answers == [200, 404, 404, 200, 200]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs to limit the files of another process")
def test_a_result_outlives_a_full_disk(start_service: Any, tmp_path: Path, request_json: dict[str, Any]) -> None:
    service = start_service(scripted=True)
    body = named(request_json, "spin", 3.0)
    location = httpx.post(service.url + "/v1/plans", json=body, headers={"Prefer": "wait=0"}).headers["location"]
    until(lambda: states(tmp_path) == ["running"])
    size, most = (tmp_path / "plans.sqlite3-wal").stat().st_size, resource.RLIM_INFINITY
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (size, most))
    assert httpx.get(service.url + "/readyz").status_code == 503
    document = finished(service.url, location)
    assert document["state"] == "timed_out"
    assert states(tmp_path) == ["running"]
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (most, most))
    until(lambda: httpx.get(service.url + "/readyz").status_code == 200)
    assert states(tmp_path) == ["timed_out"]
    assert httpx.get(service.url + location).json() == document


def test_a_client_that_leaves_ends_its_search(start_service: Any, tmp_path: Path, request_json: dict[str, Any]) -> None:
    url = start_service(scripted=True).url
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url + "/v1/plans", json=named(request_json, "spin", 1000.0), timeout=1.0)
    until(lambda: states(tmp_path) == ["cancelled"])


def test_plans_survive_a_restart(start_service: Any, request_json: dict[str, Any]) -> None:
    first = start_service()
    response = httpx.post(first.url + "/v1/plans", json=request_json, timeout=60)
    first.stop()
    second = start_service()
    assert httpx.get(second.url + response.headers["location"]).json() == response.json()


def test_a_search_that_was_killed_with_the_service_is_failed_with_the_reason(
    start_service: Any, request_json: dict[str, Any]
) -> None:
    first = start_service(scripted=True)
    location = httpx.post(
        first.url + "/v1/plans", json=named(request_json, "spin"), headers={"Prefer": "wait=0"}
    ).headers["location"]
    first.stop(signal.SIGKILL)
    second = start_service(scripted=True)
    document = httpx.get(second.url + location).json()
    assert document["state"] == "failed"
    assert [item["code"] for item in document["error"]["errors"]] == ["interrupted"]
    assert document["finished_at"] is not None


def children(process: int) -> set[int]:
    """The processes below `process`, from /proc."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(stat.parent.name)] = int(fields[1])
    found: set[int] = set()
    new = {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
def test_a_search_dies_with_a_service_that_is_killed(start_service: Any, request_json: dict[str, Any]) -> None:
    first = start_service(scripted=True)
    body = named(request_json, "hang", 1000.0)
    response = httpx.post(first.url + "/v1/plans", json=body, headers={"Prefer": "wait=2"})
    assert response.status_code == 202
    searching = children(first.process.pid)
    assert searching
    first.stop(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{child}/stat").exists() for child in searching))
    second = start_service(scripted=True)
    assert httpx.get(second.url + response.headers["location"]).json()["state"] == "failed"


def test_a_client_that_leaves_ends_the_process_that_searches_and_keeps_what_it_found(
    start_service: Any, request_json: dict[str, Any], tmp_path: Path
) -> None:
    url = start_service(scripted=True).url
    httpx.post(url + "/v1/plans", json=named(request_json, "hang", 0.1), timeout=60)  # the first one starts slowly
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url + "/v1/plans", json=named(request_json, "hang", 1000.0), timeout=4.0)
    until(lambda: states(tmp_path)[1] == "cancelled")
    assert kept(tmp_path)[-1]["status"] == "feasible"
    assert kept(tmp_path)[-1]["request"]["time_limit_s"] == 1000.0


def test_a_time_limit_is_obeyed_and_what_was_found_is_kept(scripted: Any, request_json: dict[str, Any]) -> None:
    url = scripted.url
    response = httpx.post(url + "/v1/plans", json=named(request_json, "hang", 2.0), timeout=60)
    document = response.json()
    assert (response.status_code, document["state"]) == (200, "timed_out")
    assert document["plan"]["status"] == "feasible"
    assert check(parse(Plan, document["plan"])) == []


def test_a_search_whose_process_dies_keeps_what_it_found(scripted: Any, request_json: dict[str, Any]) -> None:
    url = scripted.url
    document = httpx.post(url + "/v1/plans", json=named(request_json, "die"), timeout=60).json()
    assert document["state"] == "timed_out"
    assert check(parse(Plan, document["plan"])) == []
    assert any("the search process died" in line for line in document["plan"]["explanation"])


def test_a_search_without_memory_says_so(start_service: Any, request_json: dict[str, Any]) -> None:
    url = start_service(max_search_memory_bytes=1).url
    layers = [{**request_json["profile"]["layers"][0], "id": f"layer{index}"} for index in range(2000)]
    body = {**request_json, "profile": {"name": "long", "layers": layers}}
    document = httpx.post(url + "/v1/plans", json=body, timeout=60).json()
    assert document["state"] == "failed"
    assert [item["code"] for item in document["error"]["errors"]] == ["search_failed"]
    assert "memory" in document["error"]["detail"]
    assert httpx.get(url + "/readyz").status_code == 200


def test_a_service_that_is_told_to_stop_answers_whoever_waits(
    start_service: Any, tmp_path: Path, request_json: dict[str, Any]
) -> None:
    service = start_service(scripted=True, max_concurrent_solves=1)
    with ThreadPoolExecutor(2) as threads:
        body = named(request_json, "hang", 1000.0)
        waiting = [threads.submit(httpx.post, service.url + "/v1/plans", json=body, timeout=60) for _ in range(2)]
        until(lambda: states(tmp_path).count("running") == 1 and len(states(tmp_path)) == 2)
        service.stop()
        documents = [answer.result().raise_for_status().json() for answer in waiting]
    assert [document["state"] for document in documents] == ["cancelled", "cancelled"]
    assert {item["code"] for document in documents for item in document["error"]["errors"]} == {"interrupted"}


def test_a_store_that_is_lost_is_said_and_takes_no_place(
    start_service: Any, tmp_path: Path, request_json: dict[str, Any]
) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1, max_queued_solves=0).url
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        connection.execute("ALTER TABLE plans RENAME TO lost")
        for response in [httpx.get(url + "/readyz"), *(httpx.post(url + "/v1/plans", json=request_json) for _ in "ab")]:
            assert response.status_code == 503
            assert [item["code"] for item in response.json()["errors"]] == ["store_unavailable"]
            assert "retry-after" in response.headers
            assert "SQL" not in response.text
        assert httpx.get(url + "/livez").status_code == 200
        connection.execute("ALTER TABLE lost RENAME TO plans")
    assert httpx.get(url + "/readyz").status_code == 200
    assert httpx.post(url + "/v1/plans", json=request_json).status_code == 200


def test_two_services_do_not_share_a_store(start_service: Any) -> None:
    start_service()
    with pytest.raises(pytest.fail.Exception, match="another process serves from this store"):
        start_service()


def test_an_error_of_the_search_stays_inside(scripted: Any, request_json: dict[str, Any]) -> None:
    response = httpx.post(scripted.url + "/v1/plans", json=named(request_json, "raise"))
    assert response.status_code == 200
    assert response.json()["state"] == "failed"
    assert [item["code"] for item in response.json()["error"]["errors"]] == ["internal_error"]
    assert "secret" not in response.text
    assert "secret solver text" in scripted.log.read_text()


def test_too_large_a_problem_is_refused(start_service: Any, request_json: dict[str, Any]) -> None:
    url = start_service(scripted=True, max_layers_times_devices=7, max_time_limit_s=5).url
    response = httpx.post(url + "/v1/plans", json=request_json)
    assert response.status_code == 422
    assert {(item["code"], item["pointer"]) for item in response.json()["errors"]} == {
        ("too_large", "/profile/layers"),
        ("too_large", "/time_limit_s"),
    }
