"""The service, or a worker, with jobs that do what their profile's name says: real processes, scripted work.

python -m serving.scripted (serve|worker)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from bapipe.child import CutShort
from bapipe.errors import Fault, InvalidInputError, TimeLimitError
from bapipe.isolation import OnCutShort
from bapipe.outcome import OnProgress
from bapipe.plan import Plan, Proof
from bapipe.planner import plan_isolated
from bapipe.problem import PlanRequest
from bapipe.replays import emulation_json, simulation_json
from judges.misbehaving import Die, Hoard, SpinForEver

CHILDREN: dict[str, Any] = {"hang": SpinForEver(), "die": Die(), "hoard": Hoard()}
MEMORY_LIMIT_BYTES = 2**30
SLEEP_S = 2.0


def solve(
    request: PlanRequest, *, on_progress: OnProgress, should_stop: Callable[[], bool], on_cut_short: OnCutShort
) -> Plan:
    """What the profile's name says.

    `sleep`: for two seconds, then nothing fits; `spin`: until stopped, in vain; `raise`: an error; `refuse`: a fault;
    `hang`, `die`, `hoard`: the real search, in a child process with a formulation that does so; anything else: nothing
    fits.
    """
    name = request.profile.name
    if name in CHILDREN:
        return plan_isolated(
            request.model_copy(update={"objective": "bottleneck"}),
            on_progress=on_progress,
            should_stop=should_stop,
            on_cut_short=on_cut_short,
            formulation=CHILDREN[name],
            memory_limit_bytes=MEMORY_LIMIT_BYTES,
        )
    if name == "spin":
        end = time.monotonic() + request.time_limit_s
        while not should_stop() and time.monotonic() < end:
            time.sleep(0.01)
        on_cut_short(CutShort("stopped" if should_stop() else "time_limit", "scripted"))
        raise TimeLimitError("no plan was found in time")
    if name == "sleep":
        end = time.monotonic() + SLEEP_S
        while not should_stop() and time.monotonic() < end:
            time.sleep(0.01)
        if should_stop():
            on_cut_short(CutShort("stopped", "scripted"))
            raise TimeLimitError("no plan was found in time")
    if name == "raise":
        raise RuntimeError("secret solver text")
    if name == "refuse":
        raise InvalidInputError([Fault("unsupported", "not searched", "/objective")])
    proof = Proof(
        lower_bound_s=None, gap=None, scope="candidates", scope_detail="", solver="scripted", tolerance=0.0, wall_s=0.0
    )
    return Plan(status="infeasible", request=request, proof=proof, explanation=(f"scripted: {name}",))


def simulate(plan_json: str) -> str:
    """The simulation, unless the profile's name says otherwise, as for `solve`; in a child process."""
    _misbehave(json.loads(plan_json))
    return simulation_json(plan_json)


def emulate(request_json: str) -> str:
    """The emulation, as `simulate` simulates."""
    _misbehave(json.loads(request_json)["plan"])
    return emulation_json(request_json)


def _misbehave(plan: dict[str, Any]) -> None:
    name = plan["request"]["profile"]["name"]
    if name in ("hang", "spin"):
        CHILDREN["hang"].solve(None, None)
    if name in CHILDREN:
        CHILDREN[name].solve(None, None)
    if name == "sleep":
        time.sleep(SLEEP_S)
    if name == "raise":
        raise RuntimeError("secret solver text")
    if name == "refuse":
        raise InvalidInputError([Fault("unsupported", "not replayed", "/status")])


def main(role: str) -> None:
    """Imported late: every search's process imports this file too."""
    from bapipe_api.logs import configure_logging
    from bapipe_api.settings import Settings
    from bapipe_api.work import Tasks

    configure_logging("json")
    tasks = Tasks(solve, simulate, emulate)
    if role == "serve":
        from bapipe_api.server import serve

        serve(Settings(), tasks=tasks)
    else:
        from bapipe_api.worker import run_worker

        run_worker(Settings(), tasks=tasks)


if __name__ == "__main__":
    main(sys.argv[1])
