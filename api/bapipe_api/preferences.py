"""How long a request waits for its answer: RFC 7240, `Prefer: wait=N` and `respond-async`."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Request

from bapipe_api.dependencies import SettingsDep

WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})", re.IGNORECASE)


def preferred_wait_s(preferences: str, most_s: float) -> float:
    """Seconds to wait: what `preferences` (the header's value) asks for, at most `most_s`; not at all by default."""
    wait = WAIT.search(preferences)
    return min(float(wait[1]), most_s) if wait else 0.0


async def _wait_s(request: Request, settings: SettingsDep) -> float:
    return preferred_wait_s(",".join(request.headers.getlist("prefer")), settings.max_wait_s)


WaitSeconds = Annotated[float, Depends(_wait_s)]
