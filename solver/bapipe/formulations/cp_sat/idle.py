"""Devices idle only where that is better: of plans as good, one that uses most devices is looked for."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from ortools.sat.python.cp_model import CpSolver, LinearExpr

from bapipe.formulations.background import watched
from bapipe.formulations.cp_sat.model import PipelineModel
from bapipe.formulations.cp_sat.settings import configure
from bapipe.formulations.cp_sat.solve import Incumbents
from bapipe.formulations.problem import BottleneckProblem, Partition
from bapipe.formulations.protocol import Listener
from bapipe.formulations.ticks import ticks_for

EFFORT = 2.0
"""The most that is spent on it, in CP-SAT's own deterministic time, for the same answer every time."""


def employ_idle_devices(problem: BottleneckProblem, listener: Listener) -> None:
    """Offers partitions into more stages than the best has, and with no larger load, as far as they are found soon."""
    best, best_s = listener.best, listener.best_s
    if best is None:
        return
    used = best.candidate.num_devices
    more = tuple(c for c in problem.candidates if c.num_devices > used and problem.bound_s(c) <= best_s * (1 + 1e-9))
    if not more or best_s <= 0:
        return
    ticks = ticks_for(min(problem.least_s, best_s), best_s, problem.most_terms)
    model = PipelineModel(replace(problem, candidates=more), ticks, 0.0, "up")
    chosen = model.variables.chosen
    devices = [candidate.num_devices for candidate in chosen]
    model.model.maximize(LinearExpr.weighted_sum(list(chosen.values()), devices))
    solver = CpSolver()
    configure(solver)
    solver.parameters.max_deterministic_time = EFFORT
    found: deque[tuple[Partition, float]] = deque()
    callback = Incumbents(model, found)
    watched(lambda: solver.solve(model.model, callback), lambda: None, listener.stop, solver.stop_search)
    if found:
        listener.offer(found[-1][0], best_s * (1 + 1e-9))
