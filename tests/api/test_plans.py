"""`/v1/plans` on one process with SQLite: real searches, restarts, kills, a full disk, a full queue."""

from __future__ import annotations

import resource
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from bapipe.check import check
from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from serving.processes import children, until

WAIT = {"Prefer": "wait=60"}


def named(request: dict[str, Any], name: str, time_limit_s: float = 60.0) -> dict[str, Any]:
    """`request` under the name of a script."""
    return {**request, "profile": {**request["profile"], "name": name}, "time_limit_s": time_limit_s}


def planned(url: str, body: dict[str, Any]) -> httpx.Response:
    """The answer of a service that is given time to search."""
    return httpx.post(url + "/v1/plans", json=body, headers=WAIT, timeout=90)


def submitted(url: str, body: dict[str, Any]) -> str:
    """The address of a plan that was asked for."""
    response = httpx.post(url + "/v1/plans", json=body)
    assert response.status_code == 202
    return url + response.headers["location"]


def states(folder: Path) -> list[str]:
    """The state of every plan in the service's database."""
    with closing(sqlite3.connect(folder / "plans.sqlite3")) as connection:
        return [row[0] for row in connection.execute("SELECT state FROM jobs ORDER BY created_at")]


def finished(location: str) -> dict[str, Any]:
    """The plan at `location` once its search has ended."""
    document: dict[str, Any] = httpx.get(location, headers=WAIT, timeout=90).raise_for_status().json()
    assert document["finished_at"] is not None
    return document


def test_a_plan_is_answered_and_kept(http: httpx.Client, request_json: dict[str, Any]) -> None:
    response = http.post("/v1/plans", json=request_json, headers={"Cache-Control": "no-cache"})
    assert response.status_code == 200
    document = response.json()
    assert (document["state"], document["error"]) == ("succeeded", None)
    assert response.headers["location"] == f"/v1/plans/{document['id']}"

    plan = parse(Plan, document["plan"])
    assert plan.request == parse(PlanRequest, request_json)
    assert check(plan) == []

    again = http.get(response.headers["location"])
    assert (again.status_code, again.json()) == (200, document)
    assert again.headers["etag"] == response.headers["etag"]


def test_nothing_fits_is_an_answer(http: httpx.Client, request_json: dict[str, Any]) -> None:
    cluster = {**request_json["cluster"], "kinds": [{"name": "reference", "memory_bytes": 1000}]}
    document = http.post("/v1/plans", json={**request_json, "cluster": cluster}).json()
    assert document["state"] == "infeasible"
    assert document["plan"]["status"] == "infeasible"
    assert document["plan"]["explanation"]


def test_a_full_service_says_when_to_come_back_and_still_answers(
    start_service: Any, request_json: dict[str, Any]
) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1, max_unfinished_jobs=2).url
    locations = [submitted(url, named(request_json, "spin", 60.0 + turn)) for turn in range(2)]
    refused = httpx.post(url + "/v1/plans", json=named(request_json, "spin"))
    assert refused.status_code == 503
    assert [item["code"] for item in refused.json()["errors"]] == ["busy"]
    assert int(refused.headers["retry-after"]) >= 1
    assert httpx.get(url + "/livez").status_code == 200
    assert httpx.get(url + "/readyz").status_code == 200
    assert httpx.delete(locations[1]).json()["state"] == "cancelled"
    assert httpx.post(url + "/v1/plans", json=named(request_json, "spin")).status_code == 202


def test_who_has_too_much_is_told_so(start_service: Any, request_json: dict[str, Any]) -> None:
    url = start_service(scripted=True, max_unfinished_jobs_per_key=1).url
    submitted(url, named(request_json, "spin"))
    refused = httpx.post(url + "/v1/plans", json=named(request_json, "spin", 59.0))
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1


def test_who_leaves_the_queue_has_left_it_at_once(
    start_service: Any, tmp_path: Path, request_json: dict[str, Any]
) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1).url
    submitted(url, named(request_json, "spin", 1000.0))
    for left in range(1, 4):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url + "/v1/plans", json=named(request_json, "spin", 1000.0 + left), headers=WAIT, timeout=1.0)
        until(lambda: states(tmp_path)[1:] == ["cancelled"] * left)  # noqa: B023  called before the next turn
    assert states(tmp_path)[0] == "running"
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        assert connection.execute("SELECT count(*) FROM jobs WHERE request != ''").fetchone() == (1,)


def test_only_the_last_plans_are_kept(start_service: Any, tmp_path: Path, request_json: dict[str, Any]) -> None:
    url = start_service(scripted=True, keep_plans=2).url
    running = submitted(url, named(request_json, "spin"))
    ended = [planned(url, {**request_json, "batch_size": size}).headers["location"] for size in (1, 2, 4, 8)]
    answers = [httpx.get(location).status_code for location in [running, *(url + location for location in ended)]]
    assert answers == [200, 404, 404, 200, 200]
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        assert connection.execute("SELECT count(*) FROM results").fetchone() == (2,)
        assert connection.execute("SELECT count(DISTINCT job_id) FROM events").fetchone() == (3,)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs to limit the files of another process")
def test_a_result_outlives_a_full_disk(start_service: Any, tmp_path: Path, request_json: dict[str, Any]) -> None:
    service = start_service(scripted=True)
    location = submitted(service.url, named(request_json, "spin", 3.0))
    until(lambda: states(tmp_path) == ["running"])
    size, most = (tmp_path / "plans.sqlite3-wal").stat().st_size, resource.RLIM_INFINITY
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (size, most))
    assert httpx.get(service.url + "/readyz").status_code == 503
    document = finished(location)
    assert document["state"] == "timed_out"
    assert states(tmp_path) == ["running"]
    resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (most, most))
    until(lambda: httpx.get(service.url + "/readyz").status_code == 200)
    until(lambda: states(tmp_path) == ["timed_out"])
    stored = finished(location)
    assert {**stored, "finished_at": ""} == {**document, "finished_at": ""}


def test_plans_survive_a_restart(start_service: Any, request_json: dict[str, Any]) -> None:
    first = start_service()
    response = planned(first.url, request_json)
    first.stop()
    second = start_service()
    assert httpx.get(second.url + response.headers["location"]).json() == response.json()
    assert planned(second.url, request_json).headers["cache"] == "hit"


def path_of(location: str) -> str:
    return httpx.URL(location).path


def test_a_search_that_was_killed_with_the_service_is_done_again(
    start_service: Any, request_json: dict[str, Any]
) -> None:
    first = start_service(scripted=True)
    location = submitted(first.url, named(request_json, "sleep"))
    until(lambda: httpx.get(location).json()["state"] == "running")
    first.stop(signal.SIGKILL)
    second = start_service(scripted=True)
    document = finished(second.url + path_of(location))
    assert (document["state"], document["attempts"]) == ("infeasible", 2)


def test_a_search_that_takes_the_service_with_it_is_given_up(start_service: Any, request_json: dict[str, Any]) -> None:
    service = start_service(scripted=True)
    path = path_of(submitted(service.url, named(request_json, "spin")))
    for _ in range(3):
        until(lambda: httpx.get(service.url + path).json()["state"] == "running")  # noqa: B023  called in this turn
        service.stop(signal.SIGKILL)
        service = start_service(scripted=True)
    document = finished(service.url + path)
    assert (document["state"], document["attempts"]) == ("failed", 3)
    assert [item["code"] for item in document["error"]["errors"]] == ["killed"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
def test_a_search_dies_with_a_service_that_is_killed(start_service: Any, request_json: dict[str, Any]) -> None:
    first = start_service(scripted=True)
    location = submitted(first.url, named(request_json, "hang", 1000.0))
    until(lambda: len(children(first.process.pid)) >= 3)  # what searches are forked from, its tracker, the search
    searching = children(first.process.pid)
    first.stop(signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{child}/stat").exists() for child in searching))
    second = start_service(scripted=True)
    assert httpx.get(second.url + path_of(location)).json()["state"] in ("queued", "running")


def test_a_search_without_memory_says_so(start_service: Any, request_json: dict[str, Any]) -> None:
    url = start_service(max_search_memory_bytes=1).url
    layers = [{**request_json["profile"]["layers"][0], "id": f"layer{index}"} for index in range(2000)]
    document = planned(url, {**request_json, "profile": {"name": "long", "layers": layers}}).json()
    assert document["state"] == "failed"
    assert [item["code"] for item in document["error"]["errors"]] == ["memory_limit"]
    assert httpx.get(url + "/readyz").status_code == 200


def test_a_service_that_is_told_to_stop_answers_whoever_waits_and_goes_on_when_it_starts(
    start_service: Any, tmp_path: Path, request_json: dict[str, Any]
) -> None:
    service = start_service(scripted=True, max_concurrent_solves=1)
    bodies = [named(request_json, "sleep", limit_s) for limit_s in (50.0, 51.0)]
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(planned, service.url, body) for body in bodies]
        until(lambda: sorted(states(tmp_path)) == ["queued", "running"])
        service.stop()
        answers = [answer.result() for answer in waiting]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert states(tmp_path) == ["queued", "queued"]
    again = start_service(scripted=True)
    documents = [finished(again.url + answer.headers["location"]) for answer in answers]
    assert [(document["state"], document["attempts"]) for document in documents] == [("infeasible", 1)] * 2


def test_events_end_when_the_service_stops(start_service: Any, request_json: dict[str, Any]) -> None:
    service = start_service(scripted=True)
    location = submitted(service.url, named(request_json, "spin"))
    with httpx.stream("GET", f"{location}/events") as response:
        lines = response.iter_lines()
        assert next(lines).startswith("retry: ")
        service.process.send_signal(signal.SIGTERM)
        assert not any(line.startswith("event: end") for line in lines)
    service.process.wait(30)


def test_a_store_that_is_lost_is_said_and_takes_no_place(
    start_service: Any, tmp_path: Path, request_json: dict[str, Any]
) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1, max_unfinished_jobs=1).url
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        connection.execute("ALTER TABLE jobs RENAME TO lost")
        for response in [httpx.get(url + "/readyz"), *(httpx.post(url + "/v1/plans", json=request_json) for _ in "ab")]:
            assert response.status_code == 503
            assert [item["code"] for item in response.json()["errors"]] == ["store_unavailable"]
            assert "retry-after" in response.headers
            assert "SQL" not in response.text
        assert httpx.get(url + "/livez").status_code == 200
        connection.execute("ALTER TABLE lost RENAME TO jobs")
    assert httpx.get(url + "/readyz").status_code == 200
    assert planned(url, request_json).status_code == 200


def test_a_store_of_another_revision_is_not_ready(start_service: Any, tmp_path: Path) -> None:
    url = start_service(scripted=True).url
    with closing(sqlite3.connect(tmp_path / "plans.sqlite3")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'later'")
        connection.commit()
    answer = httpx.get(url + "/readyz")
    assert answer.status_code == 503
    assert [item["code"] for item in answer.json()["errors"]] == ["store_outdated"]


def test_two_services_do_not_share_a_store(start_service: Any) -> None:
    start_service()
    with pytest.raises(pytest.fail.Exception, match="another process serves from this store"):
        start_service()


def test_an_error_of_the_search_is_in_the_log_with_its_job(scripted: Any, request_json: dict[str, Any]) -> None:
    document = planned(scripted.url, named(request_json, "raise")).json()
    lines = [line for line in scripted.log.read_text().splitlines() if "secret solver text" in line]
    assert any(document["id"] in line for line in lines)


def test_too_large_a_problem_is_refused(start_service: Any, request_json: dict[str, Any]) -> None:
    url = start_service(scripted=True, max_layers_times_devices=7, max_time_limit_s=5).url
    response = httpx.post(url + "/v1/plans", json=request_json)
    assert response.status_code == 422
    assert {(item["code"], item["pointer"]) for item in response.json()["errors"]} == {
        ("too_large", "/profile/layers"),
        ("too_large", "/time_limit_s"),
    }
