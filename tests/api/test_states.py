"""Which state a plan is in: as good as was asked, to the tolerance of its proof."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.faults import parse
from bapipe.planner import plan
from bapipe.problem import PlanRequest
from bapipe_api.states import State, state_of


@pytest.mark.parametrize(
    ("gap", "state"), [(0.1, State.SUCCEEDED), (0.1 + 1e-15, State.SUCCEEDED), (0.11, State.TIMED_OUT)]
)
def test_a_gap_is_reached_but_for_rounding(request_json: dict[str, Any], gap: float, state: State) -> None:
    found = plan(parse(PlanRequest, {**request_json, "gap": 0.1}))
    proof = found.proof.model_copy(update={"gap": gap, "tolerance": 1e-9})
    assert state_of(found.model_copy(update={"status": "feasible", "proof": proof}), cancelled=False) == state
