"""What routes ask for: the settings, the store, the engine and the limits of the app that they run in."""

from __future__ import annotations

from typing import Annotated

from anyio import CapacityLimiter
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


def _readers(request: Request) -> CapacityLimiter:
    readers: CapacityLimiter = request.app.state.readers
    return readers


SettingsDep = Annotated[Settings, Depends(_settings)]
StoreDep = Annotated[Store, Depends(_store)]
EngineDep = Annotated[JobEngine, Depends(_engine)]
ReadersDep = Annotated[CapacityLimiter, Depends(_readers)]
"""Bounds how many bodies are parsed at once: each may take many times its size in memory, and a core."""
