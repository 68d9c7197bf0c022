"""What routes ask for: the settings, the store and the engine of the app that they run in."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from bapipe_api.jobs import JobEngine
from bapipe_api.settings import Settings
from bapipe_api.store import Store


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


def _engine(request: Request) -> JobEngine:
    engine: JobEngine = request.app.state.engine
    return engine


SettingsDep = Annotated[Settings, Depends(_settings)]
StoreDep = Annotated[Store, Depends(_store)]
EngineDep = Annotated[JobEngine, Depends(_engine)]
