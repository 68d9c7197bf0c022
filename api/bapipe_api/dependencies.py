"""What routes ask for: the settings, the store, the engine and the limits of the app that they run in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from anyio import CapacityLimiter
from fastapi import Depends, Request

from bapipe_api.cache import KnownBodies
from bapipe_api.database import Database
from bapipe_api.engine import JobEngine
from bapipe_api.keys import Keys
from bapipe_api.metrics import Metrics
from bapipe_api.settings import Settings
from bapipe_api.store import Store
from bapipe_api.watching import Watcher


@dataclass(frozen=True)
class Service:
    """Everything that a running service has, from its start to its end."""

    database: Database
    store: Store
    keys: Keys
    engine: JobEngine
    watcher: Watcher
    metrics: Metrics
    known_bodies: KnownBodies


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(_service)]


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _store(service: ServiceDep) -> Store:
    return service.store


async def _keys(service: ServiceDep) -> Keys:
    return service.keys


@dataclass(frozen=True)
class Places:
    """How much of what takes memory and a core is done at once, so that one kind of it does not keep another waiting.

    `bodies` are read in this process, `large_bodies` and `files` are read and written in processes of their own.
    """

    bodies: CapacityLimiter
    large_bodies: CapacityLimiter
    files: CapacityLimiter


def places(cores: int) -> Places:
    """Places for a service that has so many cores."""
    return Places(CapacityLimiter(cores), CapacityLimiter(1), CapacityLimiter(cores))


async def _places(request: Request) -> Places:
    found: Places = request.app.state.places
    return found


SettingsDep = Annotated[Settings, Depends(_settings)]
StoreDep = Annotated[Store, Depends(_store)]
KeysDep = Annotated[Keys, Depends(_keys)]
PlacesDep = Annotated[Places, Depends(_places)]
