"""Puts the service together: settings, store, engine, routes, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from bapipe_api import problems
from bapipe_api.cache import KnownBodies
from bapipe_api.collection import EMULATIONS, PLANS, SIMULATIONS
from bapipe_api.database import Database, sole_user
from bapipe_api.dependencies import Service, places
from bapipe_api.engines import make_engine, worker_name
from bapipe_api.keys import Keys
from bapipe_api.metrics import Metrics
from bapipe_api.migrate import migrate
from bapipe_api.routes import health, inputs, presets
from bapipe_api.routes.exports import export_router
from bapipe_api.routes.jobs import job_router
from bapipe_api.settings import Settings
from bapipe_api.store import Store
from bapipe_api.watching import Watcher
from bapipe_api.work import Tasks


def create_app(settings: Settings | None = None, *, tasks: Tasks | None = None) -> FastAPI:
    """The service as an ASGI application. `settings` None: from the environment.

    `tasks`: what jobs do; None: the search and the replays, each in a process of its own.
    """
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            service = await run_in_threadpool(_open, settings, tasks, stack)
            app.state.service = service
            try:
                yield
            finally:
                service.watcher.close()
                await run_in_threadpool(service.engine.close)

    app = FastAPI(
        title="BaPipe",
        summary="Balanced pipeline partitions, schedules and proofs for training on several accelerators",
        version=version("bapipe"),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.settings = settings
    app.state.places = places(settings.max_concurrent_solves)
    problems.install(app)
    for router in (job_router(PLANS), export_router(PLANS), inputs.router):
        app.include_router(router)
    for router in (job_router(SIMULATIONS), export_router(SIMULATIONS), job_router(EMULATIONS)):
        app.include_router(router)
    for part in (presets, health):
        app.include_router(part.router)
    return app


def _open(settings: Settings, tasks: Tasks | None, stack: ExitStack) -> Service:
    """Everything that the service has, its store migrated and its engine started."""
    database = stack.enter_context(Database(settings.url))
    stack.enter_context(sole_user(database))
    migrate(database)
    store = Store(
        database,
        max_unfinished=settings.max_unfinished_jobs,
        max_unfinished_per_owner=settings.max_unfinished_jobs_per_key,
        keep=settings.keep,
    )
    metrics = Metrics()
    metrics.watch_queue(store.counts)
    engine = make_engine(settings, database, metrics, worker_name("api"), tasks)
    engine.start()
    return Service(database, store, Keys(database), engine, Watcher(store), metrics, KnownBodies())
