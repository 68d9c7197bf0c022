"""A storm: jobs of every kind are submitted while processes are killed at random; then it is counted what became of
them."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import httpx
from sqlalchemy import select

from bapipe_api import Settings
from bapipe_api.database import Database
from bapipe_api.tables import EventRow, JobRow
from serving.asking import PLANS, SUBJECTS, Subject
from serving.deployments import Deployment
from serving.postgres import Cluster
from serving.processes import Service, end, solvers, until

UNFINISHED = ("queued", "running", "cancelling")
SETTLED_S = 180.0

Target = tuple[str, Callable[[random.Random], None]]
"""What is killed, and how."""


@dataclass
class Storm:
    """What is killed, which jobs were accepted (their addresses), and the answers that were seen when they were first
    there. `body` is of a plan."""

    deployment: Deployment
    body: dict[str, Any]
    cluster: Cluster | None = None
    seed: int = 7
    accepted: list[str] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)
    seen: dict[str, bytes] = field(default_factory=dict)

    def rage(self, kills: int, pause_s: float = 1.0) -> None:
        """Kills so many times, each time after another job was accepted; ends when all of them have ended."""
        draw = random.Random(self.seed)
        with self._submitting():
            for _ in range(kills):
                before = len(self.accepted)
                time.sleep(draw.uniform(0.5, 1.5) * pause_s)
                until(lambda: len(self.accepted) > before, SETTLED_S)  # noqa: B023  called in this turn
                name, kill = draw.choice(self._targets())
                kill(draw)
                self.kills.append(name)
        with self.deployment.client() as client:
            for job in self.accepted:
                until(lambda: self._ended(client, job), SETTLED_S)  # noqa: B023  called in this turn

    def faults(self) -> list[str]:
        """What went wrong with jobs that were accepted: nothing should have."""
        settings = Settings(database_url=self.deployment.database_url)
        with Database(settings.url) as database, database.read() as session:
            rows = {row.id: row for row in session.scalars(select(JobRow))}
            events: dict[str, list[EventRow]] = {}
            for event in session.scalars(select(EventRow).order_by(EventRow.sequence)):
                events.setdefault(event.job_id, []).append(event)
            ids = [location.rpartition("/")[2] for location in self.accepted]
            return [fault for job in ids for fault in _faults(rows.get(job), events.get(job, []))]

    def _targets(self) -> list[Target]:
        targets: list[Target] = [("service", self._kill_api), ("solver", self._kill_solver)]
        if self.deployment.workers:
            targets.append(("worker", self._kill_worker))
        if self.cluster is not None:
            targets.append(("postgres", lambda draw: self.cluster.restart() if self.cluster else None))
        return targets

    def _kill_api(self, draw: random.Random) -> None:
        self._replace(self.deployment.apis, draw)
        self.deployment.start_api()

    def _kill_worker(self, draw: random.Random) -> None:
        self._replace(self.deployment.workers, draw)
        self.deployment.start_worker()

    def _replace(self, services: list[Service], draw: random.Random) -> None:
        victim = draw.choice(services)
        services.remove(victim)
        end(victim)

    def _kill_solver(self, draw: random.Random) -> None:
        hosts = self.deployment.workers or self.deployment.apis
        found = [solver for host in hosts for solver in solvers(host.process.pid)]
        if found:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(found), signal.SIGKILL)

    @contextmanager
    def _submitting(self) -> Iterator[None]:
        over = Event()
        thread = Thread(target=self._submit, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _submit(self, over: Event) -> None:
        """Submits as a client should: with a key, again until it is answered."""
        number = 0
        with self.deployment.client(timeout=10) as client:
            while not over.is_set():
                number += 1
                subject = SUBJECTS[number % len(SUBJECTS)]
                body = {**self.body, "batch_size": 8 * number} if subject == PLANS else subject.asked("sleep")
                self._submit_once(client, subject, body, over)
                over.wait(0.4)

    def _submit_once(self, client: httpx.Client, subject: Subject, body: dict[str, Any], over: Event) -> None:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            with suppress(httpx.TransportError, ZeroDivisionError):
                response = client.post(subject.path, json=body, headers=headers)
                if response.is_success:
                    self.accepted.append(response.headers["location"])
                    return
                assert response.status_code == 503, response.text
            if over.wait(0.2):
                return

    def _ended(self, client: httpx.Client, job: str) -> bool:
        try:
            response = client.get(job)
        except httpx.TransportError:
            return False
        if response.status_code == 503:
            return False
        assert response.status_code == 200, response.text
        if response.json()["state"] in UNFINISHED:
            return False
        assert self.seen.setdefault(job, response.content) == response.content
        return True


def _faults(row: JobRow | None, events: list[EventRow]) -> Iterator[str]:
    if row is None:
        yield "a job is lost"
        return
    states = [json.loads(event.data)["state"] for event in events]
    if [event.sequence for event in events] != list(range(1, len(events) + 1)):
        yield f"{row.id}: its events are not in order: {[event.sequence for event in events]}"
    if sum(state not in UNFINISHED for state in states) != 1 or states[-1] != row.state:
        yield f"{row.id}: it did not end once: {states}, now {row.state}"
    if row.state in ("failed", "cancelled"):
        yield f"{row.id}: it is {row.state}: {row.error}"
