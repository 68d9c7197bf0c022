"""The job that an address names, for who may see it."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from bapipe_api.dependencies import Service
from bapipe_api.kinds import Kind
from bapipe_api.problems import RefusedError
from bapipe_api.records import Record

ID = re.compile(r"[0-9a-f]{32}")
JobId = Annotated[str, Path(alias="id", examples=["6f1b0b5e2f6f4e0c9d5a3b8f7c1d2e3f"])]


def find(service: Service, kind: Kind, job_id: str, owner: str) -> Record:
    """The job of `owner`.

    Raises:
        RefusedError: 404 when there is none; another's is not told from one that is not there.
    """
    record = service.store.get(job_id, owner, kind) if ID.fullmatch(job_id) else None
    if record is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, "not_found", f"there is no {kind} with this id")
    return service.engine.overlay(record)
