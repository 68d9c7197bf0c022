"""Formulations asked directly, told nothing of what is known: no warm start, no cap, no second opinion."""

from __future__ import annotations

import time

from bapipe.assembly import Assembler
from bapipe.bottleneck_search import Hearing, Witness
from bapipe.candidates import candidates
from bapipe.cuts import cut_space
from bapipe.formulations.problem import BottleneckProblem
from bapipe.formulations.protocol import Formulation
from bapipe.problem import PlanRequest


def problem_of(request: PlanRequest, limit: int = 100_000) -> BottleneckProblem:
    """The bottleneck problem of a request, over all of its cuts where there are no more than `limit`."""
    return BottleneckProblem(request, cut_space(request.profile, request.cuts, limit), tuple(candidates(request)))


def hearing_of(problem: BottleneckProblem, formulation: Formulation, seconds: float = 600.0) -> Hearing:
    """Somebody who listens to a formulation and knows nothing yet."""
    deadline_s = time.monotonic() + seconds
    assembler = Assembler(problem.request)
    witness = Witness(problem.request)
    return Hearing(problem, assembler, witness, lambda: time.monotonic() > deadline_s, deadline_s, formulation)


def unaided(request: PlanRequest, formulation: Formulation) -> float | None:
    """Seconds of the optimum that a formulation finds and proves by itself; None: it says that nothing fits."""
    problem = problem_of(request)
    if not problem.candidates:
        return None
    hearing = hearing_of(problem, formulation)
    assert hearing.hear(formulation, problem)
    return None if hearing.best is None else hearing.best_s
