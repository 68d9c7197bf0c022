"""The service with solves that do what their profile's name says: real processes and HTTP, scripted searches."""

from __future__ import annotations

import time
from collections.abc import Callable

from bapipe.errors import Fault, InvalidInputError, TimeLimitError
from bapipe.formulations.protocol import Formulation
from bapipe.plan import Plan, Proof
from bapipe.planner import plan_isolated
from bapipe.problem import PlanRequest
from bapipe_api.server import serve
from bapipe_api.settings import Settings
from judges.misbehaving import Die, SpinForEver

CHILDREN: dict[str, Formulation] = {"hang": SpinForEver(), "die": Die()}


def solve(request: PlanRequest, *, should_stop: Callable[[], bool]) -> Plan:
    """What the profile's name says.

    `spin`: until stopped, in vain; `raise`: an error; `refuse`: a fault; `hang`, `die`: the real search, in a child
    process with a formulation that does so; anything else: nothing fits.
    """
    name = request.profile.name
    if name in CHILDREN:
        bottleneck = request.model_copy(update={"objective": "bottleneck"})
        return plan_isolated(bottleneck, should_stop=should_stop, formulation=CHILDREN[name])
    if name == "spin":
        end = time.monotonic() + request.time_limit_s
        while not should_stop() and time.monotonic() < end:
            time.sleep(0.01)
        raise TimeLimitError("no plan was found in time")
    if name == "raise":
        raise RuntimeError("secret solver text")
    if name == "refuse":
        raise InvalidInputError([Fault("unsupported", "not searched", "/objective")])
    proof = Proof(
        lower_bound_s=None, gap=None, scope="candidates", scope_detail="", solver="scripted", tolerance=0.0, wall_s=0.0
    )
    return Plan(status="infeasible", request=request, proof=proof, explanation=(f"scripted: {name}",))


if __name__ == "__main__":
    serve(Settings(), solve=solve)
