"""Puts the service together: settings, store, engine, routes, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

from anyio import CapacityLimiter
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from bapipe.planner import plan_isolated
from bapipe_api import problems
from bapipe_api.jobs import JobEngine, Solve
from bapipe_api.routes import health, plans, simulations
from bapipe_api.settings import Settings
from bapipe_api.store import Store


def create_app(settings: Settings | None = None, *, solve: Solve | None = None) -> FastAPI:
    """The service as an ASGI application. `settings` None: from the environment.

    `solve` runs in a thread; None: the search, in a process of its own.
    """
    settings = settings or Settings()
    search: Solve = solve or partial(plan_isolated, memory_limit_bytes=settings.max_search_memory_bytes)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with Store(settings.database_url, keep_plans=settings.keep_plans) as store:
            engine = JobEngine(
                store, search, max_concurrent=settings.max_concurrent_solves, max_queued=settings.max_queued_solves
            )
            engine.start()
            app.state.store, app.state.engine = store, engine
            try:
                yield
            finally:
                await run_in_threadpool(engine.close)

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
    app.state.readers = CapacityLimiter(settings.max_concurrent_solves)
    problems.install(app)
    for router in (plans.router, simulations.router, health.router):
        app.include_router(router)
    return app
