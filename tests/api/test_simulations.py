"""`/v1/simulations` over HTTP says what `bapipe.simulator` says."""

from __future__ import annotations

import copy
from typing import Any

import httpx
import pytest

from bapipe.errors import InvalidInputError
from bapipe.exports import EXPORTS
from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe.simulator import simulate
from bapipe_client import Client


@pytest.fixture(scope="module")
def plan_json(service: Any) -> dict[str, Any]:
    """A plan that the service found."""
    from bapipe_api.examples import PLAN_REQUEST_EXAMPLES

    value = PLAN_REQUEST_EXAMPLES["two-devices"]["value"]
    document: dict[str, Any] = httpx.post(
        service.url + "/v1/plans", json=value, headers={"Prefer": "wait=60"}, timeout=90
    ).json()["plan"]
    return document


def test_a_plan_simulates_as_in_python(http: httpx.Client, plan_json: dict[str, Any]) -> None:
    document = http.post("/v1/simulations", json=plan_json).raise_for_status().json()["simulation"]
    expected = simulate(parse(Plan, plan_json))
    assert document["prediction"] == plan_json["prediction"]
    assert document["faults"] == []
    timeline = document["timeline"]
    assert tuple(timeline["devices"]) == expected.devices
    assert tuple(timeline["operations"]["start_s"]) == expected.operations.start_s
    assert tuple(timeline["operations"]["kind"]) == expected.operations.kind
    assert tuple(timeline["transfers"]["end_s"]) == expected.transfers.end_s
    assert max(timeline["optimizer_end_s"]) == document["prediction"]["step_time_s"]


def test_a_simulated_plan_is_had_as_files(service: Any, plan_json: dict[str, Any]) -> None:
    plan = parse(Plan, plan_json)
    with Client(service.url) as client:
        job = client.submit_simulation(plan)
        assert job.result().faults == ()
        for form, export in EXPORTS.items():
            assert job.export(form) == export.write(plan)
        with pytest.raises(InvalidInputError, match="format"):
            job.export("pdf")


def test_what_the_plan_claims_wrongly_is_said_beside_what_is_right(
    http: httpx.Client, plan_json: dict[str, Any]
) -> None:
    wrong = copy.deepcopy(plan_json)
    wrong["prediction"]["step_time_s"] /= 2
    document = http.post("/v1/simulations", json=wrong).raise_for_status().json()["simulation"]
    assert document["prediction"] == plan_json["prediction"]
    assert "/prediction/step_time_s" in {fault["pointer"] for fault in document["faults"]}


def test_a_plan_that_cannot_be_replayed_is_refused_as_in_python(http: httpx.Client, plan_json: dict[str, Any]) -> None:
    broken = copy.deepcopy(plan_json)
    broken["stages"][0]["layers"] = ["nothing", *broken["stages"][0]["layers"]]
    broken["schedule"]["orders"] = [["0F0", "x"], *broken["schedule"]["orders"][1:]]
    with pytest.raises(InvalidInputError) as caught:
        simulate(parse(Plan, broken))
    response = http.post("/v1/simulations", json=broken)
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {"code": fault.code, "detail": fault.detail, "pointer": fault.pointer} for fault in caught.value.faults
    ]


def test_counts_without_orders_cost_nothing(http: httpx.Client, plan_json: dict[str, Any]) -> None:
    broken = copy.deepcopy(plan_json)
    broken["request"]["batch_size"] = broken["schedule"]["num_microbatches"] = 10**9
    broken["schedule"]["microbatch_size"] = 1
    response = http.post("/v1/simulations", json=broken)
    assert response.status_code == 422
    assert {item["code"] for item in response.json()["errors"]} == {"missing_operation"}


def test_an_infeasible_plan_is_nothing_to_simulate(http: httpx.Client, plan_json: dict[str, Any]) -> None:
    nothing = {**plan_json, "status": "infeasible", "stages": [], "schedule": None, "prediction": None}
    response = http.post("/v1/simulations", json=nothing)
    assert response.status_code == 422
    assert response.json()["errors"]


def test_too_long_a_plan_is_refused(start_service: Any, plan_json: dict[str, Any]) -> None:
    url = start_service(max_simulated_operations=3).url
    response = httpx.post(url + "/v1/simulations", json=plan_json)
    assert response.status_code == 422
    assert [(item["code"], item["pointer"]) for item in response.json()["errors"]] == [
        ("too_large", "/schedule/orders")
    ]
