"""How CP-SAT is run, wherever it is."""

from __future__ import annotations

from ortools.sat.python.cp_model import CpSolver

SEED = 1
WORKERS = 1
"""One worker searches the same way every time."""


def configure(solver: CpSolver) -> None:
    """Sets what makes answers right and the same every time.

    OR-Tools 9.15 proves wrong optima where its presolve looks for linear constraints that include each other (issue
    5293 of google/or-tools): it is told not to.
    """
    solver.parameters.num_workers = WORKERS
    solver.parameters.random_seed = SEED
    solver.parameters.presolve_inclusion_work_limit = 0
