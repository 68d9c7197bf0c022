"""The service under load, on SQLite and on PostgreSQL, with the load on the same machine; and under fifty kills."""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import httpx

from bapipe.faults import parse
from bapipe.planner import plan
from bapipe.problem import PlanRequest
from bapipe_api.examples import PLAN_REQUEST_EXAMPLES
from benchmarks.measurement import Measurement

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / folder) for folder in ("api", "solver")]

from serving.deployments import Deployment, distributed, embedded  # noqa: E402  they are beside the tests
from serving.kills import Storm  # noqa: E402
from serving.postgres import Cluster, cluster, programs  # noqa: E402

REQUEST: dict[str, Any] = PLAN_REQUEST_EXAMPLES["two-devices"]["value"]
WAIT = {"Prefer": "wait=120"}
OVERHEAD_LIMIT_S = {"embedded": 0.150, "postgres": 0.300}
RATE_PER_S, RATE_FOR_S = 200, 10
P50_LIMIT_S, P99_LIMIT_S = 0.010, 0.050
SUBMIT_P99_LIMIT_S = 0.100
QUEUED = 1000
LISTENERS = 100
KILLS = 50


def measurements() -> Iterator[Measurement]:
    """Both deployments, one after the other; PostgreSQL where it is installed."""
    gc.collect()
    gc.freeze()  # the client's collections would count as waiting
    with tempfile.TemporaryDirectory(prefix="bapipe-bench-") as folder:
        yield from _under_load(lambda: embedded(Path(folder) / "embedded", max_concurrent_solves=2))
        yield from _under_kills(Path(folder) / "kills", None)
        if programs() is None:
            return
        with cluster() as postgres:
            settings = {"apis": 1, "workers": 1, "max_concurrent_solves": 2}
            yield from _under_load(
                lambda: distributed(Path(folder) / "postgres", postgres.database(), **settings)  # type: ignore[arg-type]
            )
            yield from _under_kills(Path(folder) / "more-kills", postgres)


def _under_load(start: Callable[[], AbstractContextManager[Deployment]]) -> Iterator[Measurement]:
    with start() as deployment:
        yield _overhead(deployment)
        yield from _cached(deployment)
        yield from _queue(deployment)
        yield _listeners(deployment)


def _overhead(deployment: Deployment) -> Measurement:
    """What a plan takes through the service beyond what its search takes in this process."""
    bare, served = [], []
    with httpx.Client(base_url=deployment.url, timeout=150, headers={**WAIT, "Cache-Control": "no-cache"}) as client:
        for _ in range(10):
            started = time.perf_counter()
            plan(parse(PlanRequest, REQUEST))
            bare.append(time.perf_counter() - started)
            started = time.perf_counter()
            client.post("/v1/plans", json=REQUEST).raise_for_status()
            served.append(time.perf_counter() - started)
    seconds = statistics.median(served) - statistics.median(bare)
    note = f"{statistics.median(served) * 1e3:.0f} ms, bare {statistics.median(bare) * 1e3:.0f} ms"
    return Measurement(f"{deployment.kind}: overhead of the service", seconds, OVERHEAD_LIMIT_S[deployment.kind], note)


def _cached(deployment: Deployment) -> Iterator[Measurement]:
    """A plan that was found before, asked for at a steady rate, however long the answers take."""
    httpx.post(f"{deployment.url}/v1/plans", json=REQUEST, headers=WAIT, timeout=150).raise_for_status()

    async def ask(client: httpx.AsyncClient) -> None:
        response = await client.post("/v1/plans", json=REQUEST)
        assert response.headers["cache"] == "hit"

    seconds = asyncio.run(_at_rate(deployment.url, ask))
    yield _quantile(f"{deployment.kind}: cached plan at {RATE_PER_S}/s, p50", seconds, 0.50, P50_LIMIT_S)
    yield _quantile(f"{deployment.kind}: cached plan at {RATE_PER_S}/s, p99", seconds, 0.99, P99_LIMIT_S)


async def _at_rate(url: str, ask: Callable[[httpx.AsyncClient], Awaitable[None]]) -> list[float]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def timed(due_s: float) -> float:
            await asyncio.sleep(due_s - time.perf_counter())
            await ask(client)
            return time.perf_counter() - due_s

        begin_s = time.perf_counter() + 0.5
        due = [begin_s + index / RATE_PER_S for index in range(RATE_PER_S * RATE_FOR_S)]
        return await asyncio.gather(*map(timed, due))


def _queue(deployment: Deployment) -> Iterator[Measurement]:
    """Many jobs that wait: how fast they are taken, and that all of them end."""
    taken, started = [], time.perf_counter()
    with httpx.Client(base_url=deployment.url, timeout=150) as client:
        locations = []
        for index in range(QUEUED):
            body = {**REQUEST, "gap": index * 1e-6, "schedules": ["1f1b"], "microbatch_sizes": [1]}
            began = time.perf_counter()
            locations.append(client.post("/v1/plans", json=body).headers["location"])
            taken.append(time.perf_counter() - began)
        yield _quantile(f"{deployment.kind}: submit to 202, p99 of {QUEUED}", taken, 0.99, SUBMIT_P99_LIMIT_S)
        states = [client.get(location, headers=WAIT).json()["state"] for location in locations]
    fault = "" if set(states) == {"succeeded"} else f"states {sorted(set(states))}"
    yield Measurement(f"{deployment.kind}: {QUEUED} queued jobs", time.perf_counter() - started, fault=fault)


def _listeners(deployment: Deployment) -> Measurement:
    """Many follow one search; each is told its end."""

    async def follow(client: httpx.AsyncClient, location: str) -> str:
        async with client.stream("GET", f"{location}/events") as response:
            lines = [line async for line in response.aiter_lines()]
        return next(line for line in reversed(lines) if line.startswith("data: "))

    async def all_of_them() -> set[str]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=deployment.url, timeout=150, limits=limits) as client:
            answer = await client.post("/v1/plans", json=REQUEST, headers={"Cache-Control": "no-cache"})
            location = answer.headers["location"]
            return set(await asyncio.gather(*(follow(client, location) for _ in range(LISTENERS))))

    started = time.perf_counter()
    ends = asyncio.run(all_of_them())
    fault = "" if len(ends) == 1 else f"they were told {len(ends)} different ends"
    return Measurement(f"{deployment.kind}: {LISTENERS} listeners", time.perf_counter() - started, fault=fault)


def _under_kills(folder: Path, postgres: Cluster | None) -> Iterator[Measurement]:
    """Random kills of every process; leases as they are by default."""
    settings: dict[str, Any] = {"scripted": True, "max_attempts": 100}
    body = {**REQUEST, "profile": {**REQUEST["profile"], "name": "hang"}, "time_limit_s": 1.0}
    with ExitStack() as stack:
        if postgres is None:
            deployment = stack.enter_context(embedded(folder, **settings))
        else:
            deployment = stack.enter_context(distributed(folder, postgres.database(), **settings))
        storm, started = Storm(deployment, body, postgres), time.perf_counter()
        storm.rage(KILLS)
        kinds = ", ".join(f"{storm.kills.count(kind)} {kind}" for kind in sorted(set(storm.kills)))
        note = f"{len(storm.accepted)} jobs; {kinds}"
        seconds = time.perf_counter() - started
        yield Measurement(f"{deployment.kind}: {KILLS} kills", seconds, note=note, fault="; ".join(storm.faults()))


def _quantile(name: str, seconds: list[float], share: float, limit_s: float) -> Measurement:
    ordered = sorted(seconds)
    return Measurement(name, ordered[min(int(share * len(ordered)), len(ordered) - 1)], limit_s)
