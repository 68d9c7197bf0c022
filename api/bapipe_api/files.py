"""What jobs have found as files: each is written in a process of its own, for as long as its client waits for it.

A trace may have hundreds of megabytes: that process packs it, and this one unpacks it piece by piece, if at all.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from bapipe.replays import Replay
from bapipe_api.aside import Most, aside
from bapipe_api.dependencies import Places, Service
from bapipe_api.kinds import Kind
from bapipe_api.problems import RefusedError
from bapipe_api.records import Record
from bapipe_api.resources import entity_tag, has_already, tagged_response
from bapipe_api.settings import Settings
from bapipe_api.states import State

PACKED_LEVEL = 1
PIECE_BYTES = 2**14
NO_WEIGHT = re.compile(r"q\s*=\s*0(\.0*)?")


async def made(
    request: Request, record: Record, write: Replay, service: Service, settings: Settings, places: Places
) -> bytes:
    """What `write` makes of a plan that was found or, for other jobs, of what was asked; packed (gzip).

    Raises:
        RefusedError: 409 when nothing was found, or nothing yet; 503 when the service stops, or the client has left.
        InvalidInputError: it takes more time or memory than this service gives.
    """
    subject = await run_in_threadpool(_subject, service, record)
    most = Most(settings.max_time_limit_s, settings.max_search_memory_bytes, places.files)
    return await aside(request, service, partial(_packed, write), subject, most)


def attachment(request: Request, packed: bytes, media_type: str, name: str) -> Response:
    """A file that a browser keeps, and runs nothing of beside its own scripts; sent packed to who takes that."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox allow-scripts",
        "Vary": "Accept-Encoding",
    }
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        return tagged_response(request, packed, media_type, {**headers, "Content-Encoding": "gzip"})
    headers["ETag"] = f'{entity_tag(packed)[:-1]}-unpacked"'
    if has_already(request, headers["ETag"]):
        return Response(None, 304, headers)
    return StreamingResponse(_unpacked(packed), headers=headers, media_type=media_type)


def _takes_gzip(accepted: str) -> bool:
    """Whether `Accept-Encoding` names it (RFC 9110), and not with a weight of 0."""
    weights = {}
    for part in accepted.lower().split(","):
        coding, _, weight = part.partition(";")
        weights[coding.strip()] = NO_WEIGHT.fullmatch(weight.strip()) is None
    return weights.get("gzip", weights.get("*", False))


def _packed(write: Replay, subject: str) -> bytes:
    return gzip.compress(write(subject).encode(), PACKED_LEVEL, mtime=0)


def _unpacked(packed: bytes) -> Iterator[bytes]:
    unpacking = zlib.decompressobj(wbits=31)
    for start in range(0, len(packed), PIECE_BYTES):
        yield unpacking.decompress(packed[start : start + PIECE_BYTES])


def _subject(service: Service, record: Record) -> str:
    if record.result is None:
        detail = f"it is {record.state}: there is no {record.kind}" + ("" if record.finished else " yet")
        raise RefusedError(HTTPStatus.CONFLICT, f"no_{record.kind}", detail)
    if record.state == State.INFEASIBLE:
        raise RefusedError(HTTPStatus.CONFLICT, "no_plan", "nothing fits: there is no plan to be written")
    return record.result if record.kind == Kind.PLAN else service.store.request_of(record.id)
