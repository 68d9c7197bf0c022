"""What happens to ranks at certain steps, and what the run says then."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any


class Disaster:
    """At a step, a signal to a rank; each once. `note` is what a run tells its events."""

    def __init__(self, plan: Mapping[int, tuple[int, signal.Signals]]) -> None:
        self.to_come = dict(plan)
        self.restarts: list[dict[str, Any]] = []
        self.all_pids: list[int] = []
        self._pids: dict[int, int] = {}

    def note(self, event: dict[str, Any]) -> None:
        """Follows the run."""
        if event["event"] == "started":
            self._pids[event["rank"]] = event["pid"]
            self.all_pids.append(event["pid"])
        elif event["event"] == "restart":
            self.restarts.append(event)
        elif event["event"] == "step" and event["step"] in self.to_come:
            rank, number = self.to_come.pop(event["step"])
            os.kill(self._pids[rank], number)
