"""Jobs from end to end, on every deployment: what is asked, waited for, followed, cancelled, asked again."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from bapipe.check import check
from bapipe.faults import parse
from bapipe.plan import Plan
from serving.asking import EMULATIONS, PLANS, SIMULATIONS, SUBJECTS, Subject
from serving.deployments import Deployment
from serving.following import WAIT, events, finished
from serving.processes import solvers, until


@pytest.fixture
def http(deployment: Deployment) -> Iterator[httpx.Client]:
    with deployment.client() as client:
        yield client


@pytest.fixture
def asked() -> Any:
    """Makes a plan request that nobody made before, under the name of a script."""
    return PLANS.asked


@pytest.fixture(params=SUBJECTS, ids=lambda subject: subject.kind)
def subject(request: pytest.FixtureRequest) -> Subject:
    """Every kind of job."""
    return request.param  # type: ignore[no-any-return]


def codes(document: dict[str, Any]) -> list[str]:
    return [item["code"] for item in document["errors"]]


def searching(deployment: Deployment) -> list[int]:
    """The processes that do jobs."""
    return [found for host in (*deployment.apis, *deployment.workers) for found in solvers(host.process.pid)]


def test_a_job_is_asked_for_and_found_at_its_address(http: httpx.Client, subject: Subject) -> None:
    response = http.post(subject.path, json=subject.asked())
    assert response.status_code == 202
    assert response.json()[subject.kind] is None
    assert response.headers["cache"] == "miss"
    assert response.headers["location"].startswith(f"{subject.path}/")
    assert int(response.headers["retry-after"]) >= 1
    document = finished(http, response.headers["location"])
    assert document["id"] == response.json()["id"]
    assert (document["state"], document["attempts"], document["error"]) == (subject.fine_state, 1, None)
    assert document[subject.kind] is not None
    assert document["created_at"] <= document["started_at"] <= document["finished_at"]


def test_a_request_may_wait_for_its_answer(http: httpx.Client, subject: Subject) -> None:
    response = http.post(subject.path, json=subject.asked(), headers=WAIT)
    assert (response.status_code, response.json()["state"]) == (200, subject.fine_state)
    assert response.json()[subject.kind]


def test_a_job_of_one_kind_is_none_of_another(http: httpx.Client) -> None:
    made = {one: http.post(one.path, json=one.asked(), headers=WAIT).json()["id"] for one in SUBJECTS}
    for one in SUBJECTS:
        for other in SUBJECTS:
            found = http.get(f"{other.path}/{made[one]}").status_code
            listed = [job["id"] for job in http.get(other.path).json()[f"{other.kind}s"]]
            assert (found == 200, made[one] in listed) == (one == other, one == other)


def test_a_wait_ends_and_the_search_goes_on(http: httpx.Client, asked: Any) -> None:
    response = http.post("/v1/plans", json=asked("spin", 2.0), headers={"Prefer": "wait=1"})
    assert response.status_code == 202
    document = finished(http, response.headers["location"])
    assert (document["state"], codes(document["error"])) == ("timed_out", ["time_limit"])


def test_many_at_once_all_get_their_own(http: httpx.Client, asked: Any) -> None:
    def plan(batch: int) -> int:
        response = http.post("/v1/plans", json={**asked(), "batch_size": batch}, headers=WAIT).raise_for_status()
        return int(response.json()["plan"]["request"]["batch_size"])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(plan, range(1, 17))) == list(range(1, 17))


@pytest.mark.parametrize(("script", "code"), [("hang", "time_limit"), ("hoard", "memory_limit")])
def test_a_search_that_ignores_its_limits_is_stopped_and_the_job_says_so(
    http: httpx.Client, asked: Any, script: str, code: str
) -> None:
    limit_s = 2.0 if script == "hang" else 60.0
    document = http.post("/v1/plans", json=asked(script, limit_s), headers=WAIT).json()
    assert (document["state"], codes(document["error"])) == ("timed_out", [code])
    assert check(parse(Plan, document["plan"])) == []


def test_a_job_whose_process_is_killed_again_and_again_is_failed_with_that_reason(
    http: httpx.Client, subject: Subject
) -> None:
    document = http.post(subject.path, json=subject.asked("die"), headers=WAIT).json()
    assert (document["state"], document["attempts"], codes(document["error"])) == ("failed", 3, ["killed"])
    assert (document[subject.kind] is not None) == (subject == PLANS)
    if subject == PLANS:
        assert check(parse(Plan, document["plan"])) == []


def test_an_error_of_the_work_stays_inside(http: httpx.Client, subject: Subject) -> None:
    response = http.post(subject.path, json=subject.asked("raise"), headers=WAIT)
    assert (response.status_code, response.json()["state"]) == (200, "failed")
    assert codes(response.json()["error"]) == ["internal_error"]
    assert "secret" not in response.text


def test_a_fault_that_only_the_work_finds_is_said(http: httpx.Client, subject: Subject) -> None:
    document = http.post(subject.path, json=subject.asked("refuse"), headers=WAIT).json()
    assert (document["state"], document["error"]["status"]) == ("failed", 422)
    assert codes(document["error"]) == ["unsupported"]


def test_a_search_is_cancelled_and_what_it_found_is_kept(http: httpx.Client, asked: Any) -> None:
    location = http.post("/v1/plans", json=asked("hang", 1000.0)).headers["location"]
    events(http, location, enough=lambda data: data["incumbent_s"] is not None)
    answer = http.delete(location)
    assert answer.status_code == 202
    assert answer.json()["state"] == "cancelling"
    document = finished(http, location)
    assert (document["state"], codes(document["error"])) == ("cancelled", ["cancelled"])
    assert document["plan"]["status"] == "feasible"
    again = http.delete(location)
    assert (again.status_code, again.json()["state"]) == (200, "cancelled")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see processes")
@pytest.mark.parametrize("replay", [SIMULATIONS, EMULATIONS], ids=lambda subject: subject.kind)
def test_a_replay_that_is_cancelled_ends_with_its_process(
    http: httpx.Client, deployment: Deployment, replay: Subject
) -> None:
    location = http.post(replay.path, json=replay.asked("hang")).headers["location"]
    until(lambda: searching(deployment))
    assert http.delete(location).json()["state"] == "cancelling"
    document = finished(http, location)
    assert (document["state"], codes(document["error"])) == ("cancelled", ["cancelled"])
    assert document[replay.kind] is None
    until(lambda: not searching(deployment))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find processes")
@pytest.mark.parametrize("replay", [SIMULATIONS, EMULATIONS], ids=lambda subject: subject.kind)
def test_a_replay_whose_process_is_killed_is_done_again(
    http: httpx.Client, deployment: Deployment, replay: Subject
) -> None:
    location = http.post(replay.path, json=replay.asked("sleep")).headers["location"]
    os.kill(until(lambda: searching(deployment))[0], signal.SIGKILL)
    document = finished(http, location)
    assert (document["state"], document["attempts"]) == ("succeeded", 2)


def test_a_client_that_leaves_ends_its_search_unless_it_may_come_back(http: httpx.Client, asked: Any) -> None:
    bodies = [asked("spin", 1000.0) for _ in range(2)]
    for body, headers in zip(bodies, ({}, {"Idempotency-Key": uuid.uuid4().hex}), strict=True):
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/plans", json=body, headers={**WAIT, **headers}, timeout=1.5)
    newest = http.get("/v1/plans?page_size=2").json()["plans"]
    until(lambda: http.get(f"/v1/plans/{newest[1]['id']}").json()["state"] == "cancelled")
    assert http.get(f"/v1/plans/{newest[0]['id']}").json()["state"] == "running"
    http.delete(f"/v1/plans/{newest[0]['id']}")


def test_the_same_request_is_answered_from_before(http: httpx.Client, subject: Subject) -> None:
    body = subject.asked()
    first = http.post(subject.path, json=body, headers=WAIT)
    reordered = dict(reversed(list(body.items())))
    for again in (
        http.post(subject.path, json=reordered),
        http.post(subject.path, content=json.dumps(body, indent=4), headers={"Content-Type": "application/json"}),
    ):
        assert (again.status_code, again.headers["cache"]) == (200, "hit")
        assert again.json() == first.json()
    fresh = http.post(subject.path, json=body, headers={**WAIT, "Cache-Control": "no-cache"})
    assert (fresh.headers["cache"], fresh.json()["id"] == first.json()["id"]) == ("miss", False)
    other = http.post(subject.path, json=subject.asked())
    assert other.headers["cache"] == "miss"


def test_what_might_be_better_another_time_is_searched_again(http: httpx.Client, asked: Any) -> None:
    body = asked("spin", 0.2)
    ids = {http.post("/v1/plans", json=body, headers=WAIT).json()["id"] for _ in range(2)}
    assert len(ids) == 2


def test_an_idempotency_key_makes_one_job(http: httpx.Client, subject: Subject) -> None:
    body, headers = subject.asked("sleep"), {"Idempotency-Key": uuid.uuid4().hex}
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: http.post(subject.path, json=body, headers=headers), range(4)))
    assert len({answer.json()["id"] for answer in answers}) == 1
    for other in SUBJECTS:
        refused = http.post(other.path, json=other.asked(), headers=headers)
        assert (refused.status_code, codes(refused.json())) == (422, ["idempotency_key_reused"])
    assert finished(http, answers[0].headers["location"])["attempts"] == 1
    cached = http.post(subject.path, json=body, headers={"Idempotency-Key": uuid.uuid4().hex})
    assert cached.headers["cache"] == "hit"


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "\xe9"])
def test_an_idempotency_key_that_is_none(http: httpx.Client, asked: Any, key: str) -> None:
    refused = http.post("/v1/plans", json=asked(), headers=[(b"Idempotency-Key", key.encode("latin-1"))])
    assert (refused.status_code, codes(refused.json())) == (422, ["wrong_idempotency_key"])


def test_an_answer_is_not_sent_again_to_who_has_it(http: httpx.Client, subject: Subject) -> None:
    location = http.post(subject.path, json=subject.asked(), headers=WAIT).headers["location"]
    first = http.get(location)
    tag = first.headers["etag"]
    assert not tag.startswith("W/")
    unchanged = http.get(location, headers={"If-None-Match": f'"other", {tag}'})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
    assert http.get(location, headers={"If-None-Match": '"other"'}).content == first.content


def test_pages_hold_every_job_once(http: httpx.Client, subject: Subject) -> None:
    made = [http.post(subject.path, json=subject.asked()).json()["id"] for _ in range(3)]
    seen, token = [], None
    while len(seen) < len(made):
        page = http.get(subject.path, params={"page_size": 2, **({"page_token": token} if token else {})}).json()
        seen += [job["id"] for job in page[f"{subject.kind}s"]]
        assert subject.kind not in page[f"{subject.kind}s"][0]
        token = page["next_page_token"]
        http.post(subject.path, json=subject.asked())  # a newer one, which belongs before all these pages
    assert [job for job in seen if job in made] == made[::-1][: len([job for job in seen if job in made])]
    assert len(set(seen)) == len(seen)


def test_plans_are_listed_by_state(http: httpx.Client, asked: Any) -> None:
    http.post("/v1/plans", json=asked("raise"), headers=WAIT)
    page = http.get("/v1/plans", params={"state": ["failed", "cancelled"]}).json()
    assert {plan["state"] for plan in page["plans"]} <= {"failed", "cancelled"}
    assert page["plans"][0]["state"] == "failed"


@pytest.mark.parametrize(
    ("parameters", "code"),
    [("page_size=0", "wrong_parameter"), ("state=lost", "wrong_parameter"), ("page_token=x", "wrong_page_token")],
)
def test_a_wrong_parameter_is_named(http: httpx.Client, parameters: str, code: str) -> None:
    refused = http.get(f"/v1/plans?{parameters}")
    assert (refused.status_code, codes(refused.json())) == (422, [code])
    assert refused.json()["errors"][0]["pointer"] == f"/{parameters.partition('=')[0]}"


def test_readiness_and_metrics(http: httpx.Client, asked: Any) -> None:
    http.post("/v1/plans", json=asked(), headers=WAIT)
    assert http.get("/readyz").json() == {"status": "ready"}
    text = http.get("/metrics").raise_for_status().text
    for name in ("bapipe_jobs_total{kind=", "bapipe_queue_depth ", "bapipe_solve_duration_seconds_bucket{"):
        assert name in text
    assert http.get("/v1/plans?page_size=1").json()["plans"][0]["id"] not in text


def test_a_queue_of_jobs_all_end(http: httpx.Client, asked: Any) -> None:
    """`make bench` does so with a thousand."""
    made = [http.post("/v1/plans", json=asked()).raise_for_status().headers["location"] for _ in range(30)]
    assert {finished(http, location)["state"] for location in made} == {"infeasible"}
