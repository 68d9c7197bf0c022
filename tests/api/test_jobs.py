"""Jobs from end to end, on every deployment: what is asked, waited for, followed, cancelled, asked again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from bapipe.check import check
from bapipe.faults import parse
from bapipe.plan import Plan
from serving.deployments import Deployment
from serving.processes import until

UNFINISHED = ("queued", "running", "cancelling")
WAIT = {"Prefer": "wait=60"}


@pytest.fixture
def http(deployment: Deployment) -> Iterator[httpx.Client]:
    with deployment.client() as client:
        yield client


@pytest.fixture
def asked(request_json: dict[str, Any]) -> Any:
    """Makes a request that nobody made before, under the name of a script."""

    def make(script: str = "nothing fits", time_limit_s: float = 60.0) -> dict[str, Any]:
        profile = {**request_json["profile"], "name": script}
        first, *others = profile["layers"]
        profile["layers"] = [{**first, "parameter_bytes": uuid.uuid4().int % 10**7}, *others]
        return {**request_json, "profile": profile, "time_limit_s": time_limit_s}

    return make


def finished(http: httpx.Client, location: str) -> dict[str, Any]:
    """The plan at `location` once its search has ended."""
    document: dict[str, Any] = http.get(location, headers=WAIT).raise_for_status().json()
    assert document["state"] not in UNFINISHED
    return document


def codes(document: dict[str, Any]) -> list[str]:
    return [item["code"] for item in document["errors"]]


def test_a_plan_is_asked_for_and_found_at_its_address(http: httpx.Client, asked: Any) -> None:
    response = http.post("/v1/plans", json=asked())
    assert response.status_code == 202
    assert response.json()["plan"] is None
    assert response.headers["cache"] == "miss"
    assert int(response.headers["retry-after"]) >= 1
    document = finished(http, response.headers["location"])
    assert document["id"] == response.json()["id"]
    assert (document["state"], document["attempts"], document["error"]) == ("infeasible", 1, None)
    assert document["created_at"] <= document["started_at"] <= document["finished_at"]


def test_a_request_may_wait_for_its_plan(http: httpx.Client, asked: Any) -> None:
    response = http.post("/v1/plans", json=asked(), headers=WAIT)
    assert (response.status_code, response.json()["state"]) == (200, "infeasible")
    assert response.json()["plan"]["explanation"] == ["scripted: nothing fits"]


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


def test_a_search_that_is_killed_again_and_again_is_failed_with_that_reason(http: httpx.Client, asked: Any) -> None:
    document = http.post("/v1/plans", json=asked("die"), headers=WAIT).json()
    assert (document["state"], document["attempts"], codes(document["error"])) == ("failed", 3, ["killed"])
    assert check(parse(Plan, document["plan"])) == []


def test_an_error_of_the_search_stays_inside(http: httpx.Client, asked: Any) -> None:
    response = http.post("/v1/plans", json=asked("raise"), headers=WAIT)
    assert (response.status_code, response.json()["state"]) == (200, "failed")
    assert codes(response.json()["error"]) == ["internal_error"]
    assert "secret" not in response.text


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


def test_a_client_that_leaves_ends_its_search_unless_it_may_come_back(http: httpx.Client, asked: Any) -> None:
    bodies = [asked("spin", 1000.0) for _ in range(2)]
    for body, headers in zip(bodies, ({}, {"Idempotency-Key": uuid.uuid4().hex}), strict=True):
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/plans", json=body, headers={**WAIT, **headers}, timeout=1.5)
    newest = http.get("/v1/plans?page_size=2").json()["plans"]
    until(lambda: http.get(f"/v1/plans/{newest[1]['id']}").json()["state"] == "cancelled")
    assert http.get(f"/v1/plans/{newest[0]['id']}").json()["state"] == "running"
    http.delete(f"/v1/plans/{newest[0]['id']}")


def test_the_same_request_is_answered_from_before(http: httpx.Client, asked: Any) -> None:
    body = asked()
    first = http.post("/v1/plans", json=body, headers=WAIT)
    reordered = dict(reversed(list(body.items())))
    for again in (
        http.post("/v1/plans", json=reordered),
        http.post("/v1/plans", content=json.dumps(body, indent=4), headers={"Content-Type": "application/json"}),
    ):
        assert (again.status_code, again.headers["cache"]) == (200, "hit")
        assert again.json() == first.json()
    fresh = http.post("/v1/plans", json=body, headers={**WAIT, "Cache-Control": "no-cache"})
    assert (fresh.headers["cache"], fresh.json()["id"] == first.json()["id"]) == ("miss", False)
    other = http.post("/v1/plans", json={**body, "batch_size": 4})
    assert other.headers["cache"] == "miss"


def test_what_might_be_better_another_time_is_searched_again(http: httpx.Client, asked: Any) -> None:
    body = asked("spin", 0.2)
    ids = {http.post("/v1/plans", json=body, headers=WAIT).json()["id"] for _ in range(2)}
    assert len(ids) == 2


def test_an_idempotency_key_makes_one_job(http: httpx.Client, asked: Any) -> None:
    body, headers = asked("sleep"), {"Idempotency-Key": uuid.uuid4().hex}
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: http.post("/v1/plans", json=body, headers=headers), range(4)))
    assert len({answer.json()["id"] for answer in answers}) == 1
    refused = http.post("/v1/plans", json=asked(), headers=headers)
    assert (refused.status_code, codes(refused.json())) == (422, ["idempotency_key_reused"])
    assert finished(http, answers[0].headers["location"])["attempts"] == 1
    cached = http.post("/v1/plans", json=body, headers={"Idempotency-Key": uuid.uuid4().hex})
    assert cached.headers["cache"] == "hit"


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "\xe9"])
def test_an_idempotency_key_that_is_none(http: httpx.Client, asked: Any, key: str) -> None:
    refused = http.post("/v1/plans", json=asked(), headers=[(b"Idempotency-Key", key.encode("latin-1"))])
    assert (refused.status_code, codes(refused.json())) == (422, ["wrong_idempotency_key"])


def test_a_plan_is_not_sent_again_to_who_has_it(http: httpx.Client, asked: Any) -> None:
    location = http.post("/v1/plans", json=asked(), headers=WAIT).headers["location"]
    first = http.get(location)
    tag = first.headers["etag"]
    assert not tag.startswith("W/")
    unchanged = http.get(location, headers={"If-None-Match": f'"other", {tag}'})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", tag)
    assert http.get(location, headers={"If-None-Match": '"other"'}).content == first.content


def test_pages_hold_every_plan_once(http: httpx.Client, asked: Any) -> None:
    made = [http.post("/v1/plans", json=asked()).json()["id"] for _ in range(5)]
    seen, token = [], None
    while len(seen) < len(made):
        page = http.get("/v1/plans", params={"page_size": 2, **({"page_token": token} if token else {})}).json()
        seen += [plan["id"] for plan in page["plans"]]
        assert "plan" not in page["plans"][0]
        token = page["next_page_token"]
        http.post("/v1/plans", json=asked())  # a newer one, which belongs before all these pages
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


def events(
    http: httpx.Client, location: str, *, last: str | None = None, enough: Callable[[Any], bool] = lambda data: False
) -> list[tuple[int, str, str]]:
    """The events that are sent, until one is enough: number, type, data."""
    headers = {} if last is None else {"Last-Event-ID": last}
    found = []
    with http.stream("GET", f"{location}/events", headers=headers) as response:
        if response.status_code == 204:
            return []
        assert response.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line and "data" in fields:
                found.append((int(fields["id"]), fields["event"], fields["data"]))
                fields = {}
                if enough(json.loads(found[-1][2])):
                    break
    return found


def test_events_come_in_order_and_end_with_the_last(http: httpx.Client, asked: Any) -> None:
    location = http.post("/v1/plans", json=asked("hang", 3.0)).headers["location"]
    followed = events(http, location)
    numbers = [number for number, _, _ in followed]
    assert numbers == sorted(set(numbers))
    assert [kind for _, kind, _ in followed] == ["progress"] * (len(followed) - 1) + ["end"]
    first, last = (json.loads(followed[index][2]) for index in (0, -1))
    assert first["state"] in ("queued", "running")
    assert set(last) == {"state", "attempt", "phase", "incumbent_s", "lower_bound_s", "gap"}
    document = finished(http, location)
    assert last["state"] == document["state"] == "timed_out"
    times = document["plan"]["schedule"]["num_microbatches"]
    assert last["incumbent_s"] == document["plan"]["prediction"]["bottleneck_s"] * times
    assert len(followed) <= 7  # in three seconds, one a second, and the last


def test_events_go_on_where_they_were_left(http: httpx.Client, asked: Any) -> None:
    location = http.post("/v1/plans", json=asked("spin", 2.0)).headers["location"]
    (left,) = events(http, location, enough=lambda data: True)
    rest = events(http, location, last=str(left[0]))
    assert all(number > left[0] for number, _, _ in rest)
    assert rest[-1][1] == "end"
    assert events(http, location, last=str(rest[-1][0])) == []
    assert events(http, location) == rest[-1:]
    assert events(http, location, last="nonsense") == rest[-1:]


def test_many_follow_one_search(http: httpx.Client, deployment: Deployment, asked: Any) -> None:
    location = http.post("/v1/plans", json=asked("spin", 2.0)).headers["location"]

    def follow(_: int) -> tuple[int, str, str]:
        with deployment.client() as client:
            return events(client, location)[-1]

    with ThreadPoolExecutor(20) as threads:
        assert len(set(threads.map(follow, range(20)))) == 1


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
