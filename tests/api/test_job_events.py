"""The events of jobs, on every deployment: in order, resumed, followed by many, to the last one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from serving.asking import EMULATIONS, PLANS, SIMULATIONS, Subject
from serving.deployments import Deployment
from serving.following import events, finished


@pytest.fixture
def http(deployment: Deployment) -> Iterator[httpx.Client]:
    with deployment.client() as client:
        yield client


@pytest.fixture
def asked() -> Any:
    """Makes a plan request that nobody made before, under the name of a script."""
    return PLANS.asked


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


@pytest.mark.parametrize("replay", [SIMULATIONS, EMULATIONS], ids=lambda subject: subject.kind)
def test_a_replay_is_followed_to_its_end(http: httpx.Client, replay: Subject) -> None:
    location = http.post(replay.path, json=replay.asked("sleep")).headers["location"]
    followed = events(http, location)
    assert [kind for _, kind, _ in followed] == ["progress"] * (len(followed) - 1) + ["end"]
    told = [json.loads(data) for _, _, data in followed]
    assert [data["state"] for data in told][-2:] == ["running", "succeeded"]
    assert all(data["incumbent_s"] is None for data in told)
    assert events(http, location, last=str(followed[-1][0])) == []


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
