"""A solver that is stopped before it has a solution has none: it is no disagreement, and no plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bapipe.examples import load_example
from bapipe.formulations.base import OutOfTimeError
from bapipe.formulations.cp_sat.solve import CpSat
from bapipe.formulations.milp.solve import Milp
from bapipe.formulations.protocol import Formulation
from bapipe.presets import cluster_from_spec
from bapipe.problem import PlanRequest
from judges.hearings import hearing_of, problem_of


@pytest.mark.parametrize("formulation", [CpSat(), Milp()], ids=lambda formulation: formulation.name)
def test_stopped_at_once(formulation: Formulation) -> None:
    request = PlanRequest(
        profile=load_example("resnet50"),
        cluster=cluster_from_spec("8xV100-16G:pcie3"),
        batch_size=32,
        objective="bottleneck",
        communication="serial",
    )
    problem = problem_of(request)
    hearing = replace(hearing_of(problem, formulation), stop=lambda: True)

    with pytest.raises(OutOfTimeError):
        hearing.hear(formulation, problem)
