"""Processes are killed while jobs are submitted and done: none is lost, none ends twice, all their events are in order.

A few kills here; `make bench` does fifty.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from serving.deployments import distributed, embedded
from serving.kills import Storm
from serving.postgres import Cluster
from serving.processes import solvers, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find processes")

KILLS = 5
PATIENT = {"max_attempts": 20, "lease_s": 2}
"""So that no job is given up, however often it is hit; and workers are missed soon."""


def searched(request: dict[str, Any], name: str = "hang", time_limit_s: float = 1.0) -> dict[str, Any]:
    return {**request, "profile": {**request["profile"], "name": name}, "time_limit_s": time_limit_s}


def judge(storm: Storm) -> None:
    storm.rage(KILLS)
    assert len(storm.kills) == KILLS
    assert len(storm.accepted) >= KILLS
    assert storm.faults() == []


def test_kills_on_sqlite(tmp_path: Path, request_json: dict[str, Any]) -> None:
    with embedded(tmp_path, scripted=True, **PATIENT) as deployment:
        judge(Storm(deployment, searched(request_json)))


@pytest.mark.xdist_group("postgres")
def test_kills_on_postgresql(tmp_path: Path, own_postgres: Cluster, request_json: dict[str, Any]) -> None:
    database = own_postgres.database()
    with distributed(tmp_path, database, apis=2, workers=2, scripted=True, **PATIENT) as deployment:
        judge(Storm(deployment, searched(request_json), own_postgres))


@pytest.mark.xdist_group("postgres")
def test_another_worker_takes_over(tmp_path: Path, postgres: Cluster, request_json: dict[str, Any]) -> None:
    running = distributed(tmp_path, postgres.database(), apis=1, workers=2, scripted=True, lease_s=2)
    with running as deployment, deployment.client() as client:
        location = client.post("/v1/plans", json=searched(request_json, "hang", 600.0)).headers["location"]
        until(lambda: any(solvers(worker.process.pid) for worker in deployment.workers))
        (holder,) = (worker for worker in deployment.workers if solvers(worker.process.pid))
        holder.stop(signal.SIGKILL)
        until(lambda: client.get(location).json()["attempts"] == 2)
        client.delete(location)
        assert client.get(location, headers={"Prefer": "wait=30"}).json()["state"] == "cancelled"


@pytest.mark.xdist_group("postgres")
def test_a_worker_that_is_told_to_stop_leaves_its_jobs_to_others(
    tmp_path: Path, postgres: Cluster, request_json: dict[str, Any]
) -> None:
    running = distributed(tmp_path, postgres.database(), apis=1, workers=1, scripted=True)
    with running as deployment, deployment.client() as client:
        location = client.post("/v1/plans", json=searched(request_json, "sleep")).headers["location"]
        until(lambda: client.get(location).json()["state"] == "running")
        assert deployment.workers[0].stop() == 0
        assert client.get(location).json()["state"] == "queued"
        until(lambda: client.get("/readyz").status_code == 503)
        deployment.start_worker()
        document = client.get(location, headers={"Prefer": "wait=60"}).json()
        assert (document["state"], document["attempts"]) == ("infeasible", 1)


@pytest.mark.xdist_group("postgres")
def test_a_worker_that_comes_back_too_late_changes_nothing(
    tmp_path: Path, postgres: Cluster, request_json: dict[str, Any]
) -> None:
    """As a machine that was suspended: it still believes that it holds the job."""
    running = distributed(tmp_path, postgres.database(), apis=1, workers=1, scripted=True, lease_s=1)
    with running as deployment, deployment.client() as client:
        late = deployment.workers[0]
        location = client.post("/v1/plans", json=searched(request_json, "hang", 2.0)).headers["location"]
        until(lambda: solvers(late.process.pid))
        late.process.send_signal(signal.SIGSTOP)
        deployment.start_worker()
        document = client.get(location, headers={"Prefer": "wait=60"}).json()
        assert (document["state"], document["attempts"]) == ("timed_out", 2)
        late.process.send_signal(signal.SIGCONT)
        until(lambda: "done again later" in late.log.read_text())
        time.sleep(0.5)
        assert client.get(location).json() == document
