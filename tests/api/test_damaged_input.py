"""A document damaged in any one place is answered or refused with a problem: never an error of the service."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from serving.asking import EMULATIONS

JUNK: tuple[Any, ...] = (None, [], {}, "x", -1, 10**400, 1e308, float("nan"))


def damaged(document: Any) -> Iterator[str]:
    """`document` with each of its values replaced by each junk, as JSON."""
    for path in list(places(document)):
        for junk in JUNK:
            broken = copy.deepcopy(document)
            parent = broken
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = junk
            yield json.dumps(broken)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside `value`; of equal siblings in a list, the first is enough."""
    children = list(value.items()) if isinstance(value, dict) else []
    children += list(enumerate(value))[:1] if isinstance(value, list) else []
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


@pytest.fixture
def plan_json(http: httpx.Client, request_json: dict[str, Any]) -> dict[str, Any]:
    plan: dict[str, Any] = http.post("/v1/plans", json=request_json).json()["plan"]
    return plan


def answered(http: httpx.Client, path: str, body: str) -> int:
    response = http.post(path, content=body, headers={"Content-Type": "application/json"})
    if response.status_code == 200:
        assert response.json().get("state") != "failed", body
    else:
        assert response.status_code == 422, body
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["errors"], body
    return response.status_code


def test_a_damaged_request(http: httpx.Client, request_json: dict[str, Any]) -> None:
    found = {answered(http, "/v1/plans", body) for body in damaged({**request_json, "time_limit_s": 0.5})}
    assert found == {200, 422}


def test_a_damaged_emulation(http: httpx.Client) -> None:
    found = {answered(http, "/v1/emulations", body) for body in damaged(EMULATIONS.asked())}
    assert found == {200, 422}


def test_a_damaged_plan(http: httpx.Client, plan_json: dict[str, Any]) -> None:
    found = {answered(http, "/v1/simulations", body) for body in damaged(plan_json)}
    assert found == {200, 422}
