"""Which engine the settings ask for, put together."""

from __future__ import annotations

import os
import socket
import uuid
from functools import partial

from bapipe.planner import plan_isolated
from bapipe_api.database import Database
from bapipe_api.embedded import EmbeddedEngine
from bapipe_api.engine import JobEngine
from bapipe_api.kinds import Kind
from bapipe_api.leases import Leases
from bapipe_api.metrics import Metrics
from bapipe_api.runner import Runner
from bapipe_api.settings import Settings
from bapipe_api.work import PlanWork, ReplayWork, Solve, Tasks, Work

RENEWALS = 5
"""How often a worker says that it lives, within the time after which it counts as dead."""


def make_engine(
    settings: Settings, database: Database, metrics: Metrics, worker: str, tasks: Tasks | None = None
) -> JobEngine:
    """The engine of the service, not started."""
    if settings.distributed:
        return _distributed(settings, database, metrics, worker)
    leases = _leases(settings, database, worker, lease_s=None)
    runner = Runner(leases, kinds_of_work(settings, tasks), metrics)
    return EmbeddedEngine(leases, runner, metrics, slots=settings.max_concurrent_solves)


def distributed_leases(settings: Settings, database: Database, worker: str) -> Leases:
    """Leases that run out."""
    return _leases(settings, database, worker, lease_s=settings.lease_s)


def _leases(settings: Settings, database: Database, worker: str, lease_s: float | None) -> Leases:
    return Leases(
        database,
        worker,
        lease_s=lease_s,
        max_attempts=settings.max_attempts,
        keep=settings.keep,
    )


def renewal_s(settings: Settings) -> float:
    """How often leases are renewed, and looked for that were not."""
    return settings.lease_s / RENEWALS


def _distributed(settings: Settings, database: Database, metrics: Metrics, worker: str) -> JobEngine:
    from bapipe_api.distributed import DistributedEngine
    from bapipe_api.queue import Queue
    from bapipe_api.sweeper import Sweeper

    leases = distributed_leases(settings, database, worker)
    queue = Queue(database)
    sweeper = Sweeper(leases, queue, metrics, every_s=renewal_s(settings), lease_s=settings.lease_s)
    return DistributedEngine(leases, queue, sweeper, lease_s=settings.lease_s)


def kinds_of_work(settings: Settings, tasks: Tasks | None) -> dict[Kind, Work]:
    """How each kind of job is done, each in a process of its own; `tasks` None: by the search and the replays."""
    tasks, most_s, most_bytes = tasks or Tasks(), settings.max_time_limit_s, settings.max_search_memory_bytes
    search: Solve = tasks.solve or partial(plan_isolated, memory_limit_bytes=most_bytes)
    return {
        Kind.PLAN: PlanWork(search),
        Kind.SIMULATION: ReplayWork(tasks.simulate, most_s, most_bytes),
        Kind.EMULATION: ReplayWork(tasks.emulate, most_s, most_bytes),
    }


def worker_name(role: str) -> str:
    """Another one for every process, on whatever machine."""
    return f"{machine_prefix(role)}{os.getpid()}-{uuid.uuid4().hex[:8]}"


def machine_prefix(role: str) -> str:
    """How the names of all processes of this role on this machine begin."""
    return f"{role}-{socket.gethostname()}-"
