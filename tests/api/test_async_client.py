"""The client for asyncio against the running service, and jobs as both clients have them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bapipe.examples import load_example
from bapipe.faults import parse
from bapipe.problem import PlanRequest
from bapipe_client import AsyncClient, Client, JobFailedError, NotFoundError, StillRunningError
from serving.processes import Service


@pytest.fixture
def request_(request_json: dict[str, Any]) -> PlanRequest:
    return parse(PlanRequest, request_json)


def renamed(request: PlanRequest, name: str, time_limit_s: float = 60.0) -> PlanRequest:
    profile = request.profile.model_copy(update={"name": name})
    return request.model_copy(update={"profile": profile, "time_limit_s": time_limit_s})


def test_many_plans_at_once(service: Service, request_: PlanRequest) -> None:
    async def plan_all() -> list[int]:
        async with AsyncClient(service.url) as client:
            asked = [request_.model_copy(update={"batch_size": 2 * size}) for size in range(1, 9)]
            plans = await asyncio.gather(*(client.plan(request) for request in asked))
            return [plan.request.batch_size for plan in plans]

    assert asyncio.run(plan_all()) == [2 * size for size in range(1, 9)]


def test_a_job_is_followed_cancelled_and_found_again(scripted: Service, request_: PlanRequest) -> None:
    async def follow() -> list[str]:
        async with AsyncClient(scripted.url) as client:
            job = await client.submit(renamed(request_, "spin", 1000.0), idempotency_key="follow-async")
            again = await client.submit(renamed(request_, "spin", 1000.0), idempotency_key="follow-async")
            assert again.id == job.id
            with pytest.raises(StillRunningError):
                await job.wait(timeout_s=0.1)
            states = []
            async for event in job.events():
                states.append(event.state)
                if event.state == "running":
                    await job.cancel()
            with pytest.raises(JobFailedError):
                await job.plan()
            assert [plan.id async for plan in client.plans(states=["cancelled"])].count(job.id) == 1
            assert (await client.job(job.id)).state == "cancelled"
            return states

    assert asyncio.run(follow())[-1] == "cancelled"


def test_a_job_outlives_its_client(service: Service, request_: PlanRequest) -> None:
    request = request_.model_copy(update={"batch_size": 24})
    with Client(service.url) as client:
        job_id = client.submit(request, fresh=True).id
    with Client(service.url) as client:
        job = client.job(job_id)
        assert job.plan(timeout_s=60.0).status == "optimal"
        assert [event.state for event in job.events()] == ["succeeded"]
        assert job.cancel().state == "succeeded"
        assert client.export(job.id, "csv").startswith("0F0,")


def test_what_else_the_service_can(service: Service, request_: PlanRequest) -> None:
    async def ask() -> None:
        async with AsyncClient(service.url) as client:
            assert await client.ready()
            assert "V100-16G" in await client.devices()
            assert "4xV100-pcie3" in await client.clusters()
            assert "pcie3" in await client.links()
            assert await client.example("vgg16") == load_example("vgg16")
            assert (await client.examples())["vgg16"].layers == 38
            assert (await client.validate(request_)).assumptions is not None
            content = request_.profile.model_dump_json().encode()
            assert await client.import_profile(content) == request_.profile
            with pytest.raises(NotFoundError):
                await client.get_plan("0" * 32)

    asyncio.run(ask())
