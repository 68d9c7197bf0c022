"""The client against the running service: what it sends, returns and raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from bapipe.errors import InvalidInputError, TimeLimitError
from bapipe.faults import parse
from bapipe.planner import plan as plan_here
from bapipe.problem import PlanRequest
from bapipe.simulator import simulate
from bapipe_client import (
    Client,
    JobFailedError,
    NotFoundError,
    ServiceBusyError,
    ServiceTimeoutError,
    ServiceUnreachableError,
)


@pytest.fixture
def client(service: Any) -> Iterator[Client]:
    with Client(service.url) as client:
        yield client


@pytest.fixture
def request_(request_json: dict[str, Any]) -> PlanRequest:
    return parse(PlanRequest, request_json)


@pytest.fixture
def scripted_client(scripted: Any) -> Iterator[Client]:
    with Client(scripted.url, retries=0) as client:
        yield client


def renamed(request: PlanRequest, name: str, time_limit_s: float = 1.0) -> PlanRequest:
    profile = request.profile.model_copy(update={"name": name})
    return request.model_copy(update={"profile": profile, "time_limit_s": time_limit_s})


def test_the_plan_is_the_one_that_python_finds(client: Client, request_: PlanRequest) -> None:
    there, here = client.plan(request_), plan_here(request_)
    assert there.request == request_
    assert (there.status, there.stages, there.schedule, there.prediction) == (
        here.status,
        here.stages,
        here.schedule,
        here.prediction,
    )


def test_a_request_can_be_given_by_its_fields(client: Client, request_: PlanRequest) -> None:
    plan = client.plan(profile=request_.profile, cluster=request_.cluster, batch_size=8, objective="bottleneck")
    assert plan.request.objective == "bottleneck"


def test_a_request_and_fields_are_one_too_many(client: Client, request_: PlanRequest) -> None:
    with pytest.raises(TypeError, match="not both"):
        client.plan(request_, batch_size=8)


def test_wrong_fields_are_refused_before_they_are_sent(request_: PlanRequest) -> None:
    with Client("http://127.0.0.1:1") as nowhere, pytest.raises(InvalidInputError) as caught:
        nowhere.plan(profile=request_.profile, cluster=request_.cluster, batch_size=-1, gap=2)
    assert [fault.pointer for fault in caught.value.faults] == ["/batch_size", "/gap"]


def test_what_the_service_refuses_is_the_error_that_python_raises(client: Client, request_: PlanRequest) -> None:
    wrong = request_.model_copy(update={"objective": "latency", "recomputation": "always"})
    with pytest.raises(InvalidInputError) as there:
        client.plan(wrong)
    with pytest.raises(InvalidInputError) as here:
        plan_here(wrong)
    assert there.value.faults == here.value.faults
    assert len(there.value.faults) == 2


def test_a_plan_is_read_again(service: Any, client: Client, request_json: dict[str, Any]) -> None:
    document = httpx.post(
        service.url + "/v1/plans", json=request_json, headers={"Prefer": "wait=60"}, timeout=90
    ).json()
    resource = client.get_plan(document["id"])
    assert resource.finished
    assert (resource.id, resource.state) == (document["id"], "succeeded")
    assert resource.plan is not None
    assert resource.created_at.tzinfo is not None


@pytest.mark.parametrize("plan_id", ["0" * 32, "../../livez", "a/b", "%", "ä", "?"])
def test_there_is_no_such_plan(client: Client, plan_id: str) -> None:
    with pytest.raises(NotFoundError):
        client.get_plan(plan_id)


def test_a_plan_is_simulated(client: Client, request_: PlanRequest) -> None:
    plan = client.plan(request_)
    result, expected = client.simulate(plan), simulate(plan)
    assert result.prediction == expected.prediction(request_)
    assert result.timeline.operations.start_s == expected.operations.start_s
    assert result.timeline.devices == expected.devices
    assert result.faults == ()


def test_a_broken_plan_is_refused_with_its_faults(client: Client, request_: PlanRequest) -> None:
    plan = client.plan(request_)
    broken = plan.model_copy(update={"stages": plan.stages[1:]})
    with pytest.raises(InvalidInputError) as there:
        client.simulate(broken)
    with pytest.raises(InvalidInputError) as here:
        simulate(broken)
    assert there.value.faults == here.value.faults


def test_ready_says_whether_the_service_is_there(client: Client) -> None:
    assert client.ready()
    with Client("http://127.0.0.1:1") as nowhere:
        assert not nowhere.ready()


def test_a_service_that_is_not_there(request_: PlanRequest) -> None:
    with Client("http://127.0.0.1:1", retries=0) as nowhere, pytest.raises(ServiceUnreachableError) as caught:
        nowhere.plan(request_)
    assert not caught.value.may_have_arrived
    assert "127.0.0.1:1" in str(caught.value)


@pytest.mark.parametrize("address", ["localhost", "", "ftp://host", "http://[bad", "http://host:99999999"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ServiceUnreachableError), Client(address, retries=0) as nowhere:
        nowhere.get_plan("0" * 32)


def test_a_search_that_fails(scripted_client: Client, request_: PlanRequest) -> None:
    with pytest.raises(JobFailedError) as caught:
        scripted_client.plan(renamed(request_, "raise"))
    assert caught.value.state == "failed"
    assert [fault.code for fault in caught.value.faults] == ["internal_error"]
    assert scripted_client.get_plan(caught.value.job_id).state == "failed"


def test_a_search_that_finds_a_fault_of_the_input(scripted_client: Client, request_: PlanRequest) -> None:
    with pytest.raises(InvalidInputError) as caught:
        scripted_client.plan(renamed(request_, "refuse"))
    assert [fault.pointer for fault in caught.value.faults] == ["/objective"]


def test_a_search_that_finds_nothing_in_time(scripted_client: Client, request_: PlanRequest) -> None:
    with pytest.raises(TimeLimitError):
        scripted_client.plan(renamed(request_, "spin"))


def test_an_infeasible_problem_is_an_answer(scripted_client: Client, request_: PlanRequest) -> None:
    assert scripted_client.plan(renamed(request_, "nothing fits")).status == "infeasible"


def test_a_search_longer_than_a_request_may_wait_is_polled(start_service: Any, request_: PlanRequest) -> None:
    with Client(start_service(max_wait_s=0).url) as client:
        assert client.plan(request_).status == "optimal"


def occupy(url: str, request: PlanRequest) -> None:
    """Starts a search that takes its whole time limit."""
    headers = {"Content-Type": "application/json", "Prefer": "wait=0"}
    response = httpx.post(url + "/v1/plans", content=renamed(request, "spin").model_dump_json(), headers=headers)
    assert response.status_code == 202


def test_a_busy_service(start_service: Any, request_: PlanRequest) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1, max_unfinished_jobs=1).url
    occupy(url, request_)
    with Client(url, retries=0) as client, pytest.raises(ServiceBusyError) as caught:
        client.plan(renamed(request_, "nothing fits"))
    assert caught.value.retry_after_s is not None


def test_a_busy_service_is_asked_again_when_it_said(start_service: Any, request_: PlanRequest) -> None:
    url = start_service(scripted=True, max_concurrent_solves=1, max_unfinished_jobs=1).url
    occupy(url, request_)
    with Client(url) as client:
        assert client.plan(renamed(request_, "nothing fits")).status == "infeasible"


def test_a_service_that_does_not_answer(request_: PlanRequest, unused_listener: str) -> None:
    with Client(unused_listener, read_timeout=0.2, retries=0) as client, pytest.raises(ServiceTimeoutError) as caught:
        client.get_plan("0" * 32)
    assert caught.value.may_have_arrived
