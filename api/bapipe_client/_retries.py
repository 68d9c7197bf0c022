"""When a request is sent again, and after how long."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED_STATUSES = frozenset({408, 425, 429, 502, 503, 504})


@dataclass(frozen=True)
class RetryPolicy:
    """At most `most` retries of a request.

    The wait is a random part of `base_s` · 2^attempt ("full jitter": clients that were refused together do not come
    back together), on top of what the service asked for (`Retry-After`). Waits over `longest_wait_s` are not made.
    """

    most: int = 3
    base_s: float = 0.5
    longest_wait_s: float = 60.0

    def wait_s(self, attempt: int, retry_after_s: float | None) -> float | None:
        """Seconds before retry number `attempt` (from 0); None: do not retry."""
        if attempt >= self.most:
            return None
        if retry_after_s is not None and retry_after_s > self.longest_wait_s:
            return None
        jitter_s = random.uniform(0, min(self.base_s * 2**attempt, self.longest_wait_s))
        return jitter_s + (retry_after_s or 0.0)


def retry_after_s(value: str | None) -> float | None:
    """A `Retry-After` header in seconds from now: it says them, or a date. None when there is none to understand."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())
