"""The service as users run it: processes of their own on loopback, on SQLite or on PostgreSQL."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bapipe_api.examples import PLAN_REQUEST_EXAMPLES
from serving import postgres as private_postgres
from serving.deployments import Deployment, distributed, embedded
from serving.processes import Service, end, start

StartService = Callable[..., Service]
WITHOUT_POSTGRES = "PostgreSQL is not installed (apt-get install postgresql)"
ON_POSTGRES = pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))


@pytest.fixture
def start_service(tmp_path: Path) -> Iterator[StartService]:
    """Starts services on one SQLite file in `tmp_path`; `scripted=True`: with scripted searches."""
    running: list[Service] = []

    def begin(**settings: Any) -> Service:
        running.append(start(tmp_path, **settings))
        return running[-1]

    yield begin
    for service in running:
        end(service)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests that only ask it."""
    service = start(tmp_path_factory.mktemp("service"), max_body_bytes=1_000_000)
    yield service
    assert service.stop() in (0, -signal.SIGTERM), service.log.read_text()


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service with scripted searches."""
    service = start(tmp_path_factory.mktemp("scripted"), scripted=True, max_concurrent_solves=4)
    yield service
    end(service)


@pytest.fixture
def own_postgres(postgres: private_postgres.Cluster) -> Iterator[private_postgres.Cluster]:
    """Another one, to be restarted."""
    with private_postgres.cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[private_postgres.Cluster]:
    """A PostgreSQL of the tests' own. CI has to have one."""
    if private_postgres.programs() is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(WITHOUT_POSTGRES)
    with private_postgres.cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["embedded", ON_POSTGRES])
def deployment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One process on SQLite, or two APIs and three workers on PostgreSQL; with scripted searches."""
    folder = tmp_path_factory.mktemp("deployment")
    if request.param == "embedded":
        with embedded(folder, scripted=True, max_concurrent_solves=4) as running:
            yield running
    else:
        database = request.getfixturevalue("postgres").database()
        with distributed(folder, database, scripted=True, max_concurrent_solves=2) as running:
            yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    """Plain HTTP to `service`; plans are waited for."""
    with httpx.Client(base_url=service.url, timeout=60, headers={"Prefer": "wait=60"}) as client:
        yield client


@pytest.fixture
def request_json() -> dict[str, Any]:
    """A small request that is right."""
    value: dict[str, Any] = PLAN_REQUEST_EXAMPLES["two-devices"]["value"]
    return {**value}


@pytest.fixture
def unused_listener() -> Iterator[str]:
    """The address of something that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
