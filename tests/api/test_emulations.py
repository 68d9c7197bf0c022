"""`/v1/emulations` over HTTP says what `bapipe.emulation` says."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from bapipe.emulation import DeadBoard, EmulationOptions, SlowBoard
from bapipe.emulation.emulate import emulate
from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe_client import Client
from judges.boards import fpga
from judges.emulated import plan_on


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A plan on three boards."""
    return plan_on(fpga(on_chip_bytes=2500, fifo_bytes=1000))


def test_a_plan_is_emulated_as_in_python(http: httpx.Client, plan: Plan) -> None:
    body = {"plan": json.loads(plan.model_dump_json()), "options": {"slow_boards": [{"device": "d1", "speed": 0.5}]}}
    document = http.post("/v1/emulations", json=body).raise_for_status().json()["emulation"]
    options = EmulationOptions(slow_boards=(SlowBoard(device="d1", speed=0.5),))
    assert document == json.loads(emulate(plan, options).report.model_dump_json())


def test_the_client_has_the_report(service: Any, plan: Plan) -> None:
    with Client(service.url) as client:
        assert client.emulate(plan) == emulate(plan).report
        lost = client.emulate(plan, EmulationOptions(dead_boards=(DeadBoard(device="d2", at_s=1.0),)))
        assert lost.loss is not None
        with pytest.raises(InvalidInputError, match="d9"):
            client.emulate(plan, EmulationOptions(slow_boards=(SlowBoard(device="d9", speed=2.0),)))


def test_the_body_is_as_documented(http: httpx.Client, plan: Plan) -> None:
    document = http.get("/openapi.json").json()
    schema = document["paths"]["/v1/emulations"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    options = schema["properties"]["options"]
    jsonschema.validate({"lossy_links": [{"devices": ["d0", "d1"], "loss": 0.1}]}, options)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"lossy_links": [{"devices": ["d0", "d1"], "loss": 1.5}]}, options)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/plan"),
        ({"options": {"seed": -1}}, "/options/seed"),
        ({"what": 1}, "/what"),
    ],
)
def test_bad_bodies_are_refused_with_places(http: httpx.Client, body: dict[str, Any], pointer: str) -> None:
    response = http.post("/v1/emulations", json=body)
    assert response.status_code == 422
    assert pointer in {fault["pointer"] for fault in response.json()["errors"]}
