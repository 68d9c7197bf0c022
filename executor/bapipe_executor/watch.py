"""The ranks of one attempt to run, by what they tell: which processes they are, who failed, whether anything moves."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from bapipe.errors import RunFailedError

START_LIMIT_S = 300.0
"""How long an attempt may take to its first sign of life, if its timeout is shorter: torch is slow to import."""

LAST_WORDS_S = 2.0
"""How long other ranks have to say that they fail, too, once one has."""

ENDING_S, LOOK_EVERY_S = 0.1, 0.005
"""How long a rank may take to be gone after its connections are; torchrun ends the others no sooner."""

MOVES = ("ready", "step", "alive", "checkpoint")
"""The events that say that the run gets on."""


class Watch:
    """`note` what the ranks of this host tell. Nothing more is to be expected from `deadline_s` on.

    Deadlines are times of `time.monotonic`.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.deadline_s = time.monotonic() + max(timeout_s, START_LIMIT_S)
        self.step = 0
        self._ready = False
        self._pids: dict[int, int] = {}
        self._failures: list[dict[str, Any]] = []
        self._gone: list[int] = []

    def note(self, event: dict[str, Any]) -> None:
        """Takes in an event."""
        kind = event["event"]
        if kind == "started":
            self._pids[event["rank"]] = event["pid"]
        elif kind == "failed":
            if not self._failures:
                self._gone = self._ended(ENDING_S if event.get("lost") else 0.0)
                self.deadline_s = time.monotonic() + LAST_WORDS_S
            self._failures.append(event)
        elif kind in MOVES:
            self.step, self._ready = event["step"], True
            if not self._failures:
                self.deadline_s = time.monotonic() + self.timeout_s

    def _ended(self, within_s: float) -> list[int]:
        """The ranks whose processes are gone, as soon as there is one: connections close a moment before."""
        until_s = time.monotonic() + within_s
        while True:
            gone = [rank for rank, pid in self._pids.items() if not _runs(pid)]
            if gone or time.monotonic() >= until_s:
                return gone
            time.sleep(LOOK_EVERY_S)

    def kill(self) -> None:
        """Ends every rank at once, those that are stopped, too."""
        for pid in self._pids.values():
            if _runs(pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def failure(self, code: int | None) -> RunFailedError:
        """Why the attempt has failed; `code` is the exit code of torchrun, None if it was ended at the deadline.

        Ranks that lose a neighbour fail after it, so one that is gone without a word is the cause, else the first.
        """
        lasting = any(event["lasting"] for event in self._failures)
        told = {event["rank"] for event in self._failures}
        silent = [str(rank) for rank in self._gone if rank not in told]
        if silent and not lasting:
            ranks = f"rank {silent[0]}" if len(silent) == 1 else f"ranks {', '.join(silent)}"
            return RunFailedError(f"{ranks} ended without a word: killed, or out of memory?")
        if self._failures:
            first = min(self._failures, key=_distance)
            return RunFailedError(f"rank {first['rank']} failed: {first['error']}: {first['message']}", lasting=lasting)
        if code is None:
            return RunFailedError(self._hangs())
        return RunFailedError(
            f"a rank ended without a word (torchrun's exit code is {code}): was it killed, or out of memory?"
        )

    def _hangs(self) -> str:
        if not self._ready:
            limit_s = max(self.timeout_s, START_LIMIT_S)
            return (
                f"the ranks were not ready within {limit_s:g} s: a rank hangs, or making the network and the data "
                "takes longer; then give more with --timeout"
            )
        return f"no step within {self.timeout_s:g} s after step {self.step}: a rank hangs"


def _distance(event: dict[str, Any]) -> int:
    """How far from the cause: what would last is one, that another rank is gone is none."""
    return 0 if event["lasting"] else 1 + event.get("lost", False)


def _runs(pid: int) -> bool:
    """Whether a process is there, and not only its entry, which stays until somebody asks how it ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return not Path("/proc/self").exists() and _is_known(pid)
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def _is_known(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
