"""The OpenAPI document says what the service does, and its examples are true."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from bapipe.check import check
from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe_api.examples import EMULATION_EXAMPLES, PLAN_REQUEST_EXAMPLES, SIMULATION_EXAMPLES

REPLAYS = ("simulations", "emulations")


@pytest.fixture(scope="module")
def document(service: Any) -> dict[str, Any]:
    result: dict[str, Any] = httpx.get(service.url + "/openapi.json").raise_for_status().json()
    return result


def schema(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": document["components"]}


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside `value`."""
    if isinstance(value, dict):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(child)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_route_is_documented(document: dict[str, Any]) -> None:
    assert {name for name, _ in operations(document)} == {
        "POST /v1/plans",
        "GET /v1/plans",
        "GET /v1/plans/{id}",
        "DELETE /v1/plans/{id}",
        "GET /v1/plans/{id}/events",
        "GET /v1/plans/{id}/trace",
        "GET /v1/plans/{id}/exports/{format}",
        "GET /v1/simulations/{id}/exports/{format}",
        "POST /v1/plans:validate",
        "POST /v1/profiles:import",
        *(f"{method} /v1/{kind}" for kind in REPLAYS for method in ("POST", "GET")),
        *(f"{method} /v1/{kind}/{{id}}" for kind in REPLAYS for method in ("GET", "DELETE")),
        *(f"GET /v1/{kind}/{{id}}/{part}" for kind in REPLAYS for part in ("events", "trace")),
        "GET /v1/presets/devices",
        "GET /v1/presets/clusters",
        "GET /v1/presets/links",
        "GET /v1/presets/profiles",
        "GET /v1/presets/profiles/{name}",
        "GET /livez",
        "GET /readyz",
        "GET /metrics",
    }
    assert all(operation["summary"] for _, operation in operations(document))


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert {node["$ref"] for node in nodes(document) if isinstance(node.get("$ref"), str)} <= known


def test_every_refusal_is_documented_as_a_problem(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        assert "default" in operation["responses"], name
        for status, response in operation["responses"].items():
            if status[0] not in "123":
                assert list(response["content"]) == ["application/problem+json"], (name, status)


@pytest.mark.parametrize("name", PLAN_REQUEST_EXAMPLES)
def test_the_examples_are_planned(http: httpx.Client, document: dict[str, Any], name: str) -> None:
    value = PLAN_REQUEST_EXAMPLES[name]["value"]
    jsonschema.validate(value, schema(document, "PlanRequest"))
    answer = http.post("/v1/plans", json=value).raise_for_status().json()
    jsonschema.validate(answer, schema(document, "PlanResource"))
    assert answer["state"] == "succeeded"
    assert check(parse(Plan, answer["plan"])) == []


@pytest.mark.parametrize(
    ("kind", "schema_name", "value"),
    [
        *(("simulation", "SimulationResource", example["value"]) for example in SIMULATION_EXAMPLES.values()),
        *(("emulation", "EmulationResource", example["value"]) for example in EMULATION_EXAMPLES.values()),
    ],
)
def test_the_examples_are_replayed(
    http: httpx.Client, document: dict[str, Any], kind: str, schema_name: str, value: dict[str, Any]
) -> None:
    operation = document["paths"][f"/v1/{kind}s"]["post"]
    content = operation["requestBody"]["content"]["application/json"]
    jsonschema.validate(value, {**content["schema"], "components": document["components"]})
    answer = http.post(f"/v1/{kind}s", json=value).raise_for_status().json()
    jsonschema.validate(answer, schema(document, schema_name))
    assert answer["state"] == "succeeded"
    assert answer[kind].get("faults", []) == []


def test_problems_are_as_documented(http: httpx.Client, document: dict[str, Any]) -> None:
    wrong = copy.deepcopy(PLAN_REQUEST_EXAMPLES["two-devices"]["value"])
    wrong["batch_size"] = 0
    for response in (http.post("/v1/plans", json=wrong), http.get("/v1/plans/none"), http.post("/v1/plans")):
        jsonschema.validate(response.json(), schema(document, "Problem"))


ORDINARY = {"date", "content-length", "content-type", "transfer-encoding", "x-content-type-options"}
"""Headers that need no word about them."""


def said_of(document: dict[str, Any], path: str, response: httpx.Response) -> set[str]:
    """The headers of `response` that its operation does not document."""
    operation = document["paths"][path][response.request.method.lower()]
    documented = operation["responses"][str(response.status_code)].get("headers", {})
    return {name.lower() for name in response.headers} - {name.lower() for name in documented} - ORDINARY


def test_the_headers_of_jobs_are_as_documented(http: httpx.Client, document: dict[str, Any]) -> None:
    bodies = {"plans": PLAN_REQUEST_EXAMPLES, "simulations": SIMULATION_EXAMPLES, "emulations": EMULATION_EXAMPLES}
    for kind, examples in bodies.items():
        path, value = f"/v1/{kind}", next(iter(examples.values()))["value"]
        made = http.post(path, json=value, headers={"Cache-Control": "no-cache", "Prefer": "respond-async"})
        assert (made.status_code, said_of(document, path, made)) == (202, set())
        one = made.headers["location"]
        asked = [http.get(one, headers={"Prefer": "wait=0"}), http.get(one), http.post(path, json=value)]
        asked += [http.get(one, headers={"If-None-Match": asked[1].headers["etag"]}), http.delete(one)]
        for response, place in zip(asked, ("/{id}", "/{id}", "", "/{id}", "/{id}"), strict=True):
            assert said_of(document, path + place, response) == set(), response.request
        for part in ("trace", "events"):
            response = http.get(f"{one}/{part}")
            assert (response.status_code, said_of(document, f"{path}/{{id}}/{part}", response)) == (200, set())


def test_the_headers_of_presets_are_as_documented(http: httpx.Client, document: dict[str, Any]) -> None:
    for name in ("devices", "links", "clusters", "profiles"):
        response = http.get(f"/v1/presets/{name}")
        assert (response.status_code, said_of(document, f"/v1/presets/{name}", response)) == (200, set())
