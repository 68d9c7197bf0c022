"""`bapipe worker`: a process that does jobs of the service, on any machine that reaches its PostgreSQL database."""

from __future__ import annotations

import asyncio
import logging
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import procrastinate
from procrastinate.exceptions import ProcrastinateException
from procrastinate.jobs import Status
from psycopg_pool import PoolTimeout
from sqlalchemy.exc import SQLAlchemyError

from bapipe.child import warm_up
from bapipe.replays import MODULES
from bapipe_api.database import Database, brief
from bapipe_api.engines import distributed_leases, kinds_of_work, machine_prefix, renewal_s, worker_name
from bapipe_api.leases import Leases
from bapipe_api.metrics import Metrics
from bapipe_api.migrate import migrate
from bapipe_api.queue import NAME, TASK, Queue, conninfo
from bapipe_api.runner import Runner
from bapipe_api.settings import Settings
from bapipe_api.sweeper import Sweeper
from bapipe_api.work import Tasks

FETCH_EVERY_S = 2.0
"""How long an announcement may wait if PostgreSQL's notification of it is lost."""

CLEAN_EVERY_S = 30.0
RESTART_AFTER_S = 0.5
LEAST_CONNECTIONS = 2

log = logging.getLogger(__name__)


class Worker:
    """Does jobs until it is told to stop (SIGTERM, SIGINT); those that still run then wait for another worker."""

    def __init__(self, settings: Settings, database: Database, metrics: Metrics, tasks: Tasks | None = None) -> None:
        self._slots = settings.max_concurrent_solves
        self._database = database
        self._leases = distributed_leases(settings, database, worker_name("worker"))
        every_s = renewal_s(settings)
        self._runner = Runner(self._leases, kinds_of_work(settings, tasks), metrics, renew_every_s=every_s)
        self._queue = Queue(database)
        self._sweeper = Sweeper(self._leases, self._queue, metrics, every_s=every_s, lease_s=settings.lease_s)
        self._threads = ThreadPoolExecutor(self._slots, thread_name_prefix="slot")

    def run(self) -> None:
        """Blocks until the worker has stopped."""
        warm_up(*MODULES)
        self._queue.open()
        self._runner.start()
        self._sweeper.start()
        try:
            asyncio.run(self._listen())
        finally:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._sweeper.close()
            self._runner.close()
            self._queue.close()
            _leave(self._leases)

    async def _listen(self) -> None:
        """Follows the queue until told to stop. When it breaks, as when PostgreSQL is restarted, it is begun again."""
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop, stopping)
        log.info("worker %s is ready for %d jobs at a time", self._leases.worker, self._slots)
        while not stopping.is_set():
            following = asyncio.create_task(self._follow())
            ended = asyncio.create_task(stopping.wait())
            await asyncio.wait((following, ended), return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
            if not stopping.is_set():
                await asyncio.sleep(RESTART_AFTER_S)

    def _stop(self, stopping: asyncio.Event) -> None:
        log.info("worker %s stops", self._leases.worker)
        self._runner.stop()
        stopping.set()

    async def _follow(self) -> None:
        connector = procrastinate.PsycopgConnector(
            conninfo=conninfo(self._database), min_size=1, max_size=self._slots + LEAST_CONNECTIONS
        )
        app = procrastinate.App(connector=connector)
        app.task(name=TASK, queue=NAME)(self._look)
        try:
            async with app.open_async():
                cleaning = asyncio.create_task(_clean(app))
                try:
                    await app.run_worker_async(
                        queues=[NAME],
                        name=self._leases.worker,
                        concurrency=self._slots,
                        fetch_job_polling_interval=FETCH_EVERY_S,
                        shutdown_graceful_timeout=0,
                        delete_jobs="always",
                        install_signal_handlers=False,
                    )
                finally:
                    cleaning.cancel()
        except (ProcrastinateException, PoolTimeout, OSError) as error:
            log.warning("the queue does not answer: %s", error)

    async def _look(self, job_id: str) -> None:
        """Does this job, unless another worker does. The work does not end with the queue that announced it."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._do, job_id)

    def _do(self, job_id: str) -> None:
        if self._runner.stopping:
            return
        try:
            lease = self._leases.claim(job_id)
        except SQLAlchemyError as error:
            log.warning("not begun, it will be announced again: %s", brief(error), extra={"job_id": job_id})
            return
        if lease is not None:
            self._runner.run(lease)


def run_worker(settings: Settings, *, tasks: Tasks | None = None) -> None:
    """Does jobs until told to stop.

    Raises:
        UnusableStoreError: the database cannot be reached, or is no store.
    """
    with Database(settings.url) as database:
        migrate(database)
        Worker(settings, database, Metrics(), tasks).run()


def is_heard_of(settings: Settings, database: Database) -> bool:
    """Whether a worker of this machine has said in time that it lives."""
    leases = distributed_leases(settings, database, worker_name("check"))
    return leases.live_workers(settings.lease_s, machine_prefix("worker")) > 0


async def _clean(app: procrastinate.App) -> None:
    """Removes announcements that a worker took and ended with. Their jobs are the sweeper's affair."""
    while True:
        await asyncio.sleep(CLEAN_EVERY_S)
        with suppress(ProcrastinateException):
            for look in await app.job_manager.get_stalled_jobs(queue=NAME):
                await app.job_manager.finish_job(look, Status.FAILED, delete_job=True)


def _leave(leases: Leases) -> None:
    with suppress(SQLAlchemyError):
        leases.leave()
