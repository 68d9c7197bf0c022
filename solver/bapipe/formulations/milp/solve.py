"""Runs a solver that PuLP knows on the model. Its proof is one in floats, to within a tolerance that it states."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import highspy
import pulp

from bapipe.errors import Fault, SolverDisagreementError
from bapipe.formulations.background import watched
from bapipe.formulations.base import OutOfTimeError
from bapipe.formulations.milp.model import PulpModel
from bapipe.formulations.problem import BottleneckProblem
from bapipe.formulations.protocol import Listener
from bapipe.nearest import nearest

DEFAULT = "HiGHS"

TOLERANCE = 1e-6
"""Relative: what a float solver's proof may be off by."""

FEASIBILITY = 1e-9
"""What HiGHS may exceed a constraint by, in units of the objective."""

FINE = 0.1
"""Of the unit: what is less is not taken for a bound, and an optimum that is less is solved again in units of itself,
since the tolerances of float solvers are absolute."""

REFINEMENTS = 3
"""Solves, each in units of the best load that is known."""

SOLVED = 1e-4
"""What a constraint may be exceeded by in a solution: of a solver that was interrupted, PuLP says that it has one even
where it has none."""

SEED = 1


def milp_faults(name: str) -> Iterator[Fault]:
    """Why the solver of this name cannot be asked."""
    known, ready = pulp.listSolvers(), pulp.listSolvers(onlyAvailable=True)
    if name in ready:
        return
    if name in known:
        detail = f"PuLP does not find the solver {name} here; install it, or use milp, which is {DEFAULT}"
        yield Fault("solver_not_found", detail, "/solver")
        return
    near = nearest(name, known)
    hint = f"did you mean milp:{near}?" if near else f"those ready here are {', '.join(ready)}"
    yield Fault("unknown_value", f"PuLP knows no solver {name}; {hint}", "/solver")


@cache
def _swallow_banner() -> None:
    """Makes HiGHS greet once, where nobody hears it: it does so on stdout, before it can be told not to."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    highspy.Highs()  # type: ignore[no-untyped-call]
    os.dup2(kept, 1)
    os.close(kept)
    os.close(nowhere)


@dataclass(frozen=True)
class Milp:
    """The bottleneck optimum by mixed-integer programming. `log`: write the solver's log."""

    solver: str = DEFAULT
    log: bool = False
    tolerance: float = TOLERANCE
    works_on_graph: bool = True

    @property
    def name(self) -> str:
        """Which solver it is of those that PuLP knows."""
        return f"milp:{self.solver}"

    def solve(self, problem: BottleneckProblem, listener: Listener) -> bool:
        """Offers partitions and bounds until nothing can be below the listener's threshold, or nothing fits.

        Raises:
            OutOfTimeError: the time is up.
            SolverDisagreementError: a claim does not hold, or none is as good as what is known already.
        """
        for _ in range(REFINEMENTS):
            known_s = listener.best_s
            run = self._run(problem, listener, known_s)
            if run.status == pulp.LpStatusInfeasible:
                if known_s < float("inf"):
                    detail = f"{self.name} finds nothing as good as {known_s!r} s, which is known"
                    raise SolverDisagreementError(detail)
                return True
            if not run.offer_last() or run.claim != pulp.LpSolutionOptimal:
                break
            if known_s == 0 or run.value_s >= FINE * run.model.unit_s:
                listener.bound(run.value_s * (1 - problem.request.gap))
                return True
        if listener.stop() or run.interrupted:
            raise OutOfTimeError
        return False

    def _run(self, problem: BottleneckProblem, listener: Listener, known_s: float) -> _Run:
        """One program, in units of the best load that is known, so that no duration that matters is above 1."""
        most_s = problem.most_s if known_s == float("inf") else known_s
        model = PulpModel(problem.eased(known_s), most_s or 1.0, most_s)
        run = _Run(model, listener, self.solver, problem.request.gap, self.log)
        run.solve()
        return run


@dataclass
class _Run:
    """One solve. `status` and `claim`, of the problem and the solution, are PuLP's."""

    model: PulpModel
    listener: Listener
    solver: str
    gap: float
    log: bool
    status: int = pulp.LpStatusNotSolved
    claim: int = pulp.LpSolutionNoSolutionFound
    interrupted: bool = False
    value_s: float = float("inf")
    _found: deque[list[float]] = field(default_factory=deque)
    _bounds: deque[float] = field(default_factory=deque)

    def solve(self) -> None:
        """Until the end, or the listener's time is up."""
        solver = pulp.getSolver(self.solver, **self._options())
        if self.solver == DEFAULT and not self.log:
            _swallow_banner()

        def work() -> int:
            return int(self.model.program.lp.solve(solver))

        self.status = watched(work, self._tell, self.listener.stop, self._interrupt)
        self.claim = self.model.program.lp.sol_status

    def offer_last(self) -> bool:
        """Offers the solution at the end. False: there is none, or it does not fit."""
        solved = self.claim in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
        return solved and self.model.program.lp.valid(SOLVED) and self._offer(lambda variable: variable.varValue)

    def _offer(self, value: Callable[[pulp.LpVariable], float | None]) -> bool:
        """Offers a solution; claims a little more than it says. A variable without a value is in no constraint."""
        unit_s = self.model.unit_s
        self.value_s = (value(self.model.load) or 0.0) * unit_s
        most_s = self.value_s * (1 + TOLERANCE) + TOLERANCE * unit_s
        return self.listener.offer(self.model.program.partition(value), most_s)

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"msg": self.log, "timeLimit": self.listener.seconds_left}
        if self.solver != DEFAULT:
            return options | {"gapRel": self.gap}
        return options | {
            "gapRel": self.gap,
            "gapAbs": 0.0,
            "threads": 1,
            "random_seed": SEED,
            "mip_feasibility_tolerance": FEASIBILITY,
            "primal_feasibility_tolerance": FEASIBILITY,
            "small_matrix_value": 1e-12,
            "callbackTuple": (self._hear, None),
            "callbacksToActivate": [
                highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution,
                highspy.cb.HighsCallbackType.kCallbackMipInterrupt,
            ],
        }

    def _hear(self, kind: Any, message: str, said: Any, answer: Any, data: object) -> None:
        """Called by HiGHS in the solver's thread."""
        if kind == highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution:
            self._found.append(list(said.mip_solution))
        else:
            self._bounds.append(float(said.mip_dual_bound))
            answer.user_interrupt = self.interrupted

    def _interrupt(self) -> None:
        self.interrupted = True

    def _tell(self) -> None:
        while self._found:
            values = self._found.popleft()
            self._offer(lambda variable, values=values: _value(variable, values))  # type: ignore[misc]
        bound = None
        while self._bounds:
            bound = self._bounds.popleft()
        if bound is not None and bound >= FINE:
            self.listener.bound((bound * (1 - TOLERANCE) - FEASIBILITY) * self.model.unit_s)


def _value(variable: pulp.LpVariable, values: list[float]) -> float | None:
    """By the column that PuLP gave it; those in no constraint have none."""
    column = getattr(variable, "index", None)
    return None if column is None else values[column]
