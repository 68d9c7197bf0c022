"""Runs that outlive their ranks: a failed or hung attempt is ended, and a fresh one goes on from its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bapipe.errors import RunFailedError
from bapipe.plan import Plan
from bapipe_executor.checkpoint import complete_checkpoints
from bapipe_executor.checkpoint_lock import locked
from bapipe_executor.launch import Hosts, launch
from bapipe_executor.run_spec import RunSpec


def supervise(
    plan: Plan, spec: RunSpec, on_event: Callable[[dict[str, Any]], None], max_restarts: int, hosts: Hosts | None = None
) -> None:
    """Runs the ranks of this host to their end, in up to `max_restarts` more attempts if one of them fails.

    Each attempt has a torchrun of its own, on a port of its own. `on_event` gets what the ranks report and, before each
    further attempt, `restart`: its number, the reason, and the step from which it goes on. On several hosts each
    supervises its own ranks: an attempt that fails on one of them fails on all.

    A checkpoint that has all steps already is told of as `ready`, and nothing is started.

    Raises:
        InvalidInputError: the plan does not fit so many hosts, or another run saves in the folder of the checkpoints.
        OSError: that folder cannot be written to.
        RunFailedError: the last attempt failed, or one for a reason that would last.
    """
    first_host = hosts is None or hosts.rank == 0
    with locked(Path(spec.checkpoint)) if spec.checkpoint and first_host else nullcontext():
        if spec.resume and _saved_steps(spec) >= spec.steps:
            on_event({"event": "ready", "step": _saved_steps(spec)})
        else:
            _attempts(plan, spec, on_event, max_restarts, hosts)


def _attempts(
    plan: Plan, spec: RunSpec, on_event: Callable[[dict[str, Any]], None], max_restarts: int, hosts: Hosts | None
) -> None:
    for attempt in range(max_restarts + 1):
        try:
            launch(plan, spec, on_event, hosts, attempt)
        except RunFailedError as error:
            if error.lasting or attempt == max_restarts:
                raise
            spec = spec.model_copy(update={"resume": True})
            on_event({"event": "restart", "attempt": attempt + 1, "reason": str(error), "step": _saved_steps(spec)})
        else:
            return


def _saved_steps(spec: RunSpec) -> int:
    found = complete_checkpoints(Path(spec.checkpoint)) if spec.checkpoint else []
    return found[-1][0] if found else 0
