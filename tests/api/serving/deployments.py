"""The service as it is deployed: alone on SQLite, or several processes on one PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx

from serving.processes import Service, end, start

Database = Callable[[], str]


@dataclass
class Deployment:
    """Running processes on one store: the APIs answer in turn, as behind a load balancer."""

    kind: str
    folder: Path
    settings: dict[str, Any]
    scripted: bool
    apis: list[Service] = field(default_factory=list)
    workers: list[Service] = field(default_factory=list)

    def start_api(self) -> Service:
        self.apis.append(start(self.folder, scripted=self.scripted, **self.settings))
        return self.apis[-1]

    def start_worker(self) -> Service:
        self.workers.append(start(self.folder, role="worker", scripted=self.scripted, **self.settings))
        return self.workers[-1]

    def client(self, **options: Any) -> httpx.Client:
        """HTTP to the APIs in turn."""
        given: dict[str, Any] = {"timeout": 60, **options}
        return httpx.Client(base_url="http://service", transport=_InTurn(self), **given)

    @property
    def database_url(self) -> str:
        """Where the store is."""
        return str(self.settings.get("database_url", f"sqlite:///{self.folder}/plans.sqlite3"))

    @property
    def url(self) -> str:
        return self.apis[0].url

    def close(self) -> None:
        for service in (*self.apis, *self.workers):
            end(service)


class _InTurn(httpx.BaseTransport):
    """Sends each request to the next API that runs."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._transports: dict[str, httpx.HTTPTransport] = {}
        self._turn = cycle(range(1_000_000))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        running = [api for api in self._deployment.apis if api.process.poll() is None]
        url = httpx.URL(running[next(self._turn) % len(running)].url)
        request.url = request.url.copy_with(host=url.host, port=url.port)
        request.headers["Host"] = f"{url.host}:{url.port}"
        return self._transports.setdefault(str(url), httpx.HTTPTransport()).handle_request(request)

    def close(self) -> None:
        for transport in self._transports.values():
            transport.close()


@contextmanager
def embedded(folder: Path, *, scripted: bool = False, **settings: Any) -> Iterator[Deployment]:
    """One process on SQLite."""
    deployment = Deployment("embedded", folder, settings, scripted)
    try:
        deployment.start_api()
        yield deployment
    finally:
        deployment.close()


@contextmanager
def distributed(
    folder: Path, url: str, *, apis: int = 2, workers: int = 3, scripted: bool = False, **settings: Any
) -> Iterator[Deployment]:
    """So many processes on one PostgreSQL database."""
    deployment = Deployment("postgres", folder, {"database_url": url, **settings}, scripted)
    try:
        deployment.start_api()  # the first one migrates the database
        with ThreadPoolExecutor() as threads:
            others = [threads.submit(deployment.start_api) for _ in range(1, apis)]
            others += [threads.submit(deployment.start_worker) for _ in range(workers)]
        for other in others:
            other.result()
        yield deployment
    finally:
        deployment.close()
