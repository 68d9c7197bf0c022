"""Runs CP-SAT on the model, again where its whole numbers were too coarse, and trusts nothing that it says.

Every partition is offered to be timed again; a bound counts as one because durations are rounded down.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field

from ortools.sat.python.cp_model import (
    FEASIBLE,
    INFEASIBLE,
    OPTIMAL,
    UNKNOWN,
    CpSolver,
    CpSolverSolutionCallback,
    CpSolverStatus,
)

from bapipe.errors import SolverDisagreementError
from bapipe.formulations.background import watched
from bapipe.formulations.base import TOLERANCE, OutOfTimeError
from bapipe.formulations.cp_sat.model import PipelineModel
from bapipe.formulations.cp_sat.settings import configure
from bapipe.formulations.cp_sat.windows import search_windows
from bapipe.formulations.problem import BottleneckProblem, Partition
from bapipe.formulations.protocol import Listener
from bapipe.formulations.ticks import Rounding, Ticks, ticks_for

WINDOWS_SHARE = 0.5
"""Of the time that is left, the most that goes into single cuts before the whole model is built."""

REFINEMENTS = 4
"""Each time the best load is the limit of the next model, with ticks to match."""


@dataclass(frozen=True)
class CpSat:
    """The bottleneck optimum by constraint programming. `log`: write the solver's log to stderr."""

    log: bool = False
    name: str = "cp-sat"
    tolerance: float = TOLERANCE
    works_on_graph: bool = True

    def solve(self, problem: BottleneckProblem, listener: Listener) -> bool:
        """Offers partitions and bounds until nothing can be below the listener's threshold, or nothing fits.

        Raises:
            OutOfTimeError: the time is up.
            SolverDisagreementError: a claim does not hold, or none is as good as what is known already.
        """
        least_s = problem.least_s
        if not problem.space.complete and problem.relays_tensors:
            least_s = search_windows(problem, listener, listener.seconds_left * (1 - WINDOWS_SHARE))
        for _ in range(REFINEMENTS):
            if least_s >= listener.threshold_s:
                return True
            run = self._run(problem, listener, least_s, "down")
            if run.status == INFEASIBLE:
                return True
            bound_s = run.bound_ticks * run.ticks.tick_s
            listener.bound(bound_s)
            if bound_s >= listener.threshold_s:
                return True
            if run.misfits:
                self._run(problem, listener, least_s, "up")
                return bound_s >= listener.threshold_s
        return False

    def _run(self, problem: BottleneckProblem, listener: Listener, least_s: float, rounding: Rounding) -> _Run:
        """One model, solved to its end; nothing is below `least_s`.

        Raises:
            OutOfTimeError: the time is up; what is proven by then has been told.
        """
        known, known_s = listener.best, listener.best_s
        ticks = ticks_for(min(problem.least_s, known_s), known_s if known else problem.most_s, problem.most_terms)
        model = PipelineModel(problem.eased(known_s), ticks, min(least_s, known_s), rounding)
        if known is not None:
            model.hint(known)
        run = _Run(model, listener, ticks, problem.request.gap, self.log, keeps_bounds=rounding == "down")
        run.solve()
        if run.status == INFEASIBLE and known is not None and rounding == "down":
            detail = f"{self.name} finds nothing as good as {known_s!r} s, which {known.candidate} reaches"
            raise SolverDisagreementError(detail)
        if run.misfits and model.memory.exact:
            raise SolverDisagreementError(f"{self.name} says that a plan fits, which by its replay it does not")
        if run.status not in (OPTIMAL, INFEASIBLE):
            raise OutOfTimeError
        return run


@dataclass
class _Run:
    """One solve in the background. `misfits` counts partitions that did not fit when they were offered."""

    model: PipelineModel
    listener: Listener
    ticks: Ticks
    gap: float
    log: bool
    keeps_bounds: bool
    status: CpSolverStatus = UNKNOWN
    bound_ticks: float = 0.0
    misfits: int = 0
    _found: deque[tuple[Partition, float]] = field(default_factory=deque)
    _bounds: deque[float] = field(default_factory=deque)

    def solve(self) -> None:
        """Solves until the end or the listener's stop; offers and bounds are told as they come."""
        solver = CpSolver()
        configure(solver)
        solver.parameters.relative_gap_limit = self.gap
        solver.parameters.log_search_progress = self.log
        solver.parameters.log_to_stdout = False
        solver.log_callback = _log
        solver.best_bound_callback = self._bounds.append
        callback = Incumbents(self.model, self._found)

        def work() -> CpSolverStatus:
            return solver.solve(self.model.model, callback)

        self.status = watched(work, self._tell, self.listener.stop, solver.stop_search)
        if self.status in (OPTIMAL, FEASIBLE):
            self.bound_ticks = solver.best_objective_bound
        elif self.status not in (INFEASIBLE, UNKNOWN):
            raise RuntimeError(f"CP-SAT refuses the model: {self.model.model.validate()}")

    def _tell(self) -> None:
        while self._found:
            partition, load_ticks = self._found.popleft()
            claimed_s = load_ticks * self.ticks.tick_s + self.ticks.error_s
            self.misfits += not self.listener.offer(partition, claimed_s)
        while self._bounds:
            bound = self._bounds.popleft()
            if self.keeps_bounds and bound <= self.ticks.most_ticks:
                self.listener.bound(bound * self.ticks.tick_s)


class Incumbents(CpSolverSolutionCallback):
    """Keeps every better solution as a partition with its load in ticks; runs in the solver's own thread."""

    def __init__(self, model: PipelineModel, found: deque[tuple[Partition, float]]) -> None:
        super().__init__()
        self._variables, self._found = model.variables, found
        self._deciding = self._variables.deciding()

    def on_solution_callback(self) -> None:
        """Called by CP-SAT."""
        values = [self.value(variable) for variable in self._deciding]
        self._found.append((self._variables.partition(values), self.objective_value))


def _log(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201
