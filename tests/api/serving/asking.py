"""Requests of every kind of job: each is one that nobody made before, under the name of a script (`scripted.py`)."""

from __future__ import annotations

import copy
import uuid
from dataclasses import dataclass
from typing import Any

from bapipe_api.examples import EMULATION_EXAMPLES, PLAN_REQUEST_EXAMPLES, SIMULATION_EXAMPLES

FINE = "nothing fits"
"""A script that does its job: the search finds that nothing fits, a replay replays."""


@dataclass(frozen=True)
class Subject:
    """A kind of job: where it is asked for, and the state in which one ends that is `FINE`."""

    kind: str
    fine_state: str

    @property
    def path(self) -> str:
        return f"/v1/{self.kind}s"

    def asked(self, script: str = FINE, time_limit_s: float = 60.0) -> dict[str, Any]:
        """A body that nobody sent before."""
        examples = {"plan": PLAN_REQUEST_EXAMPLES, "simulation": SIMULATION_EXAMPLES, "emulation": EMULATION_EXAMPLES}
        body: dict[str, Any] = copy.deepcopy(next(iter(examples[self.kind].values()))["value"])
        request = {"plan": body, "simulation": body.get("request"), "emulation": body.get("plan", {}).get("request")}
        request[self.kind]["time_limit_s"] = time_limit_s
        request[self.kind]["profile"]["name"] = script
        if self.kind == "emulation":
            body["options"]["seed"] = uuid.uuid4().int % 10**9
        else:
            request[self.kind]["profile"]["layers"][0]["parameter_bytes"] = uuid.uuid4().int % 10**7
        return body


PLANS = Subject("plan", "infeasible")
SIMULATIONS = Subject("simulation", "succeeded")
EMULATIONS = Subject("emulation", "succeeded")
SUBJECTS = (PLANS, SIMULATIONS, EMULATIONS)
