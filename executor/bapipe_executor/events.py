"""What workers tell whoever started them: lines of JSON among whatever else they print."""

from __future__ import annotations

import json
import sys
from typing import Any

MARK = "@bapipe "


def emit(kind: str, **values: Any) -> None:
    """Prints an event."""
    sys.stdout.write(f"{MARK}{json.dumps({'event': kind, **values})}\n")
    sys.stdout.flush()


def parse(line: str) -> dict[str, Any] | None:
    """The event in a line of output; None for anything else."""
    _, mark, text = line.partition(MARK)
    if not mark:
        return None
    try:
        event = json.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
