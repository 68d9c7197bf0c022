"""Who asks, and whether they may: bearer keys, or nobody but this machine while there are none."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from bapipe_api.dependencies import KeysDep, SettingsDep
from bapipe_api.keys import Keys
from bapipe_api.problems import RefusedError
from bapipe_api.settings import Settings

ANYBODY = ""
"""The owner of plans that were made while no key was asked for."""


@dataclass(frozen=True)
class Caller:
    """Who asks: `owner` has the plans that are seen."""

    owner: str


def needs(scope: str) -> Callable[..., Coroutine[Any, Any, Caller]]:
    """A dependency that lets through who has a key with `scope`.

    Raises:
        RefusedError: 401 without a valid key, 403 for a key without the scope, or from elsewhere while there are none.
    """

    async def authorize(request: Request, settings: SettingsDep, keys: KeysDep) -> Caller:
        if is_loopback(settings.host) and not await _keys_exist(keys):
            _refuse_strangers(request)
            return Caller(ANYBODY)
        return await run_in_threadpool(_caller, request, keys, scope)

    return authorize


Reader = Annotated[Caller, Depends(needs("read"))]
Writer = Annotated[Caller, Depends(needs("write"))]


def may_listen(settings: Settings, keys: Keys) -> bool:
    """Whether the service may be reached from other machines: only with keys."""
    return is_loopback(settings.host) or keys.exist()


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


async def _keys_exist(keys: Keys) -> bool:
    known = keys.exist_for_all_we_know()
    return await run_in_threadpool(keys.exist) if known is None else known


def _caller(request: Request, keys: Keys, scope: str) -> Caller:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    key = keys.verify(token.strip()) if scheme.lower() == "bearer" else None
    if key is None:
        detail = "a valid key is needed: Authorization: Bearer KEY"
        raise RefusedError(
            HTTPStatus.UNAUTHORIZED, "unauthorized", detail, {"WWW-Authenticate": 'Bearer realm="bapipe"'}
        )
    if scope not in key.scopes:
        challenge = f'Bearer realm="bapipe", error="insufficient_scope", scope="{scope}"'
        raise RefusedError(
            HTTPStatus.FORBIDDEN,
            "insufficient_scope",
            f"this key lacks the scope {scope!r}",
            {"WWW-Authenticate": challenge},
        )
    return Caller(key.name)


def _refuse_strangers(request: Request) -> None:
    """Neither another machine, nor a web page that has made its own name resolve to this one."""
    name = request.url.hostname or ""
    from_here = request.client is None or is_loopback(request.client.host)
    if not from_here or not is_loopback(name):
        detail = "without keys the service answers this machine only, under localhost; make one: bapipe keys create"
        raise RefusedError(HTTPStatus.FORBIDDEN, "keys_needed", detail)
