"""What else the service does with plans, requests and profiles: traces, exports, imports, checks, presets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from bapipe.examples import ExampleSummary, example_summaries, load_example
from bapipe.faults import parse
from bapipe.formats import load_profile
from bapipe.formats.order_table import parse_orders
from bapipe.plan import Plan
from bapipe.planner import validate
from bapipe.presets import clusters, device_kinds, links
from bapipe.problem import Cluster, DeviceKind, Link, ModelProfile, PlanRequest
from bapipe.simulator import simulate
from bapipe.trace import chrome_trace
from serving.processes import Service

EXAMPLES = Path(__file__).parents[2] / "examples"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def location(http: httpx.Client, request_json: dict[str, Any]) -> str:
    address: str = http.post("/v1/plans", json=request_json).headers["location"]
    return address


@pytest.fixture
def plan(http: httpx.Client, location: str) -> Plan:
    return parse(Plan, http.get(location).json()["plan"])


def codes(response: httpx.Response) -> list[str]:
    return [item["code"] for item in response.json()["errors"]]


def test_the_trace_is_that_of_python(http: httpx.Client, location: str, plan: Plan) -> None:
    response = http.get(f"{location}/trace")
    assert response.text == chrome_trace(plan, simulate(plan))
    assert http.get(f"{location}/exports/trace").text == response.text
    assert http.get(f"{location}/trace", headers={"If-None-Match": response.headers["etag"]}).status_code == 304


def test_the_exports_say_what_the_plan_says(http: httpx.Client, location: str, plan: Plan) -> None:
    exported = {name: http.get(f"{location}/exports/{name}").raise_for_status() for name in ("json", "csv", "html")}
    assert parse(Plan, exported["json"].json()) == plan
    assert plan.schedule is not None
    assert parse_orders(exported["csv"].text).orders == plan.schedule.orders
    assert exported["html"].text.startswith("<!doctype html>")
    for response in exported.values():
        assert response.headers["content-disposition"].startswith("attachment; filename=")
        assert response.headers["x-content-type-options"] == "nosniff"


def test_a_format_that_is_none(http: httpx.Client, location: str) -> None:
    response = http.get(f"{location}/exports/pdf")
    assert (response.status_code, codes(response)) == (422, ["wrong_parameter"])


def test_a_search_that_has_no_plan_yet_or_none_at_all(scripted: Service, request_json: dict[str, Any]) -> None:
    profile = {**request_json["profile"], "name": "spin"}
    for body in ({**request_json, "profile": profile}, request_json):
        with httpx.Client(base_url=scripted.url, timeout=60, headers={"Prefer": "wait=1"}) as client:
            response = client.get(client.post("/v1/plans", json=body).headers["location"] + "/trace")
        assert (response.status_code, codes(response)) == (409, ["no_plan"])


def test_a_request_is_checked_as_in_python(http: httpx.Client, request_json: dict[str, Any]) -> None:
    answer = http.post("/v1/plans:validate", json=request_json).raise_for_status().json()
    assert tuple(answer["assumptions"]) == validate(parse(PlanRequest, request_json))
    wrong = {**request_json, "batch_size": 0, "gap": 2, "objective": "latency"}
    refused, asked = http.post("/v1/plans:validate", json=wrong), http.post("/v1/plans", json=wrong)
    assert refused.status_code == 422
    assert refused.json() == asked.json()


@pytest.mark.parametrize(
    ("name", "parameters"), [("tiny.json", {}), ("tiny.graph.txt", {"profile_batch": 32, "name": "tiny"})]
)
def test_a_profile_is_read_as_in_python(http: httpx.Client, name: str, parameters: dict[str, Any]) -> None:
    content = (EXAMPLES / name).read_bytes()
    headers = {"Content-Type": "text/plain"}
    answer = http.post("/v1/profiles:import", content=content, params=parameters, headers=headers)
    expected = load_profile(EXAMPLES / name, profile_batch=parameters.get("profile_batch"))
    assert parse(ModelProfile, answer.raise_for_status().json()) == expected


@pytest.mark.parametrize(
    ("content", "parameters", "code"),
    [
        (b"nothing known", {}, "unknown_format"),
        (b"\xff\xfe", {}, "not_utf8"),
        (b"{}", {}, "missing"),
        (b"{}", {"format": "onnx"}, "unknown_format"),
        ((EXAMPLES / "tiny.graph.txt").read_bytes(), {}, "missing_profile_batch"),
        (b"{}", {"profile_batch": 0}, "wrong_parameter"),
    ],
)
def test_a_profile_that_is_none(http: httpx.Client, content: bytes, parameters: dict[str, Any], code: str) -> None:
    response = http.post("/v1/profiles:import", content=content, params=parameters, headers=JSON)
    assert response.status_code == 422
    assert code in codes(response)


def test_presets_are_those_of_python(http: httpx.Client) -> None:
    devices = http.get("/v1/presets/devices").raise_for_status()
    assert {name: parse(DeviceKind, value) for name, value in devices.json().items()} == device_kinds()
    found = http.get("/v1/presets/clusters").raise_for_status().json()
    assert {name: parse(Cluster, value) for name, value in found.items()} == clusters()
    found = http.get("/v1/presets/links").raise_for_status().json()
    assert {name: parse(Link, value) for name, value in found.items()} == links()
    again = http.get("/v1/presets/devices", headers={"If-None-Match": devices.headers["etag"]})
    assert again.status_code == 304


def test_examples_are_those_of_python(http: httpx.Client) -> None:
    found = http.get("/v1/presets/profiles").raise_for_status().json()
    assert {name: ExampleSummary.model_validate(value) for name, value in found.items()} == example_summaries()
    whole = http.get("/v1/presets/profiles/vgg16").raise_for_status()
    assert parse(ModelProfile, whole.json()) == load_example("vgg16")
    absent = http.get("/v1/presets/profiles/vgg61")
    assert (absent.status_code, codes(absent)) == (404, ["not_found"])
    assert "vgg16" in absent.json()["detail"]


def test_a_preset_is_planned_for_over_http_alone(http: httpx.Client) -> None:
    """As with curl: a profile is imported, a preset taken, a plan asked for."""
    content = (EXAMPLES / "tiny.graph.txt").read_bytes()
    profile = http.post("/v1/profiles:import", params={"profile_batch": 16}, content=content, headers=JSON).json()
    cluster = http.get("/v1/presets/clusters").json()["4xV100-pcie3"]
    body = json.dumps({"profile": profile, "cluster": cluster, "batch_size": 16})
    document = http.post("/v1/plans", content=body, headers=JSON).json()
    assert document["state"] == "succeeded"
