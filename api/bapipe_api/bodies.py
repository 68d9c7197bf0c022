"""Reads a request's JSON body: its kind is checked, its bytes are counted as they arrive, and nothing is trusted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from bapipe_api.dependencies import SettingsDep
from bapipe_api.problems import RefusedError
from bapipe_api.settings import Settings

CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\"';\s]+)", re.IGNORECASE)
DRAINED_LIMITS = 8
"""So many times the limit is read of a body that is too large, so that its sender gets to read the refusal."""


async def json_body(request: Request, settings: SettingsDep) -> bytes:
    """The body, unparsed.

    Raises:
        RefusedError: 415 for a body of another kind or with a content coding, 413 over the limit, 408 when too slow.
    """
    body = await _body(request, settings)
    _check_kind(request)
    return body


async def text_body(request: Request, settings: SettingsDep) -> bytes:
    """The body, whatever it says that it is: its format is found by its content. Otherwise as `json_body`."""
    return await _body(request, settings)


JsonBody = Annotated[bytes, Depends(json_body)]
TextBody = Annotated[bytes, Depends(text_body)]


async def _body(request: Request, settings: Settings) -> bytes:
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            body = await _read(request, settings)
    except TimeoutError:
        detail = f"the body did not arrive within {settings.body_timeout_s:g} s"
        raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "body_too_slow", detail, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "body_incomplete", "the body ended too early") from None
    _check_coding(request)
    return body


async def _read(request: Request, settings: Settings) -> bytes:
    limit = settings.max_body_bytes
    chunks = request.stream()
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            body.clear()
            await _drain(chunks, limit * DRAINED_LIMITS)
            detail = f"the body is larger than {limit} bytes; send less, or have BAPIPE_MAX_BODY_BYTES raised"
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body_too_large", detail, {"Connection": "close"})
    return bytes(body)


async def _drain(chunks: AsyncIterator[bytes], most_bytes: int) -> None:
    async for chunk in chunks:
        most_bytes -= len(chunk)
        if most_bytes < 0:
            return


def _check_coding(request: Request) -> None:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        detail = f"Content-Encoding {coding!r} is not accepted; send the body as it is"
        headers = {"Accept-Encoding": "identity"}
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_content_encoding", detail, headers)


def _check_kind(request: Request) -> None:
    content_type = request.headers.get("content-type", "")
    kind, charset = content_type.partition(";")[0].strip().lower(), CHARSET.search(content_type)
    if kind != "application/json" or (charset and charset[1].lower() not in ("utf-8", "utf8")):
        detail = "the body must be application/json, in UTF-8"
        headers = {"Accept": "application/json"}
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail, headers)
