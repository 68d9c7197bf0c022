"""The cut that the least crosses, of those with a given amount of work in front of them: a small model of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ortools.sat.python.cp_model import FEASIBLE, INFEASIBLE, OPTIMAL, CpModel, CpSolver, IntVar

from bapipe.cuts import Array, Mask
from bapipe.formulations.cp_sat.settings import configure
from bapipe.formulations.cp_sat.variables import Term, total
from bapipe.formulations.problem import BottleneckProblem

LARGEST = 2.0**40
"""Work and bytes are counted in so many parts of their sums; both are rounded so that a bound stays one."""

LIMIT_S = 5.0
"""A single cut is given up after so long; what is proven of it by then is kept."""


@dataclass(frozen=True)
class CheapestCut:
    """`bytes_per_sample`: no cut in the window is crossed by less. `inside`: [layers] the cut found, if any."""

    bytes_per_sample: float
    inside: Mask | None


class SingleCut:
    """Finds cheapest cuts of one problem; `work_s`: [layers] what counts as work."""

    def __init__(self, problem: BottleneckProblem, work_s: Array) -> None:
        self._problem, self._work_s = problem, work_s
        self._total_s = float(work_s.sum())
        sizes = np.array([tensor.bytes_per_sample for tensor in problem.graph.tensors])
        self._byte_scale = LARGEST / max(1.0, float(sizes.sum()))
        self._crossing = np.floor(sizes * self._byte_scale).astype(int)
        self._work_scale = LARGEST / self._total_s
        self._ticks = np.floor(work_s * self._work_scale).astype(int)
        reach = problem.reach
        self._before_s = work_s if reach is None else work_s + work_s @ reach
        self._behind_s = work_s if reach is None else work_s + reach @ work_s

    def find(self, low_s: float, high_s: float) -> CheapestCut | None:
        """The cheapest cut with between `low_s` and `high_s` of work inside; None where there is no such cut.

        A layer is outside where it and all before it are too much, inside where too little is left without it.
        """
        slack_s = 1e-12 * self._total_s
        outside = self._before_s > high_s + slack_s
        inside = self._behind_s > self._total_s - low_s + slack_s
        if (inside & outside).any():
            return None
        model = CpModel()
        rows = self._rows(model, inside, outside)
        self._keep_order(model, rows)
        work = [(row, int(ticks)) for row, ticks in zip(rows, self._ticks, strict=True) if ticks]
        model.add(total(work) <= int(high_s * self._work_scale) + 1)
        model.add(total(work) >= int(low_s * self._work_scale) - len(rows))
        model.minimize(total(self._crossings(model, rows, inside, outside)))
        solver = CpSolver()
        configure(solver)
        solver.parameters.max_time_in_seconds = LIMIT_S
        status = solver.solve(model)
        if status == INFEASIBLE:
            return None
        if status not in (OPTIMAL, FEASIBLE):
            return CheapestCut(0.0, None)
        found = np.array([solver.boolean_value(row) for row in rows])
        return CheapestCut(max(0.0, solver.best_objective_bound) / self._byte_scale, found)

    def _rows(self, model: CpModel, inside: Mask, outside: Mask) -> list[IntVar]:
        """[layers] whether each is inside; the layers of a group are so together."""
        rows: list[IntVar] = [model.new_constant(0)] * len(inside)
        for group in self._problem.together:
            low, high = int(inside[list(group)].any()), int(not outside[list(group)].any())
            row = model.new_int_var(min(low, high), high, "")
            for layer in group:
                rows[layer] = row
        return rows

    def _keep_order(self, model: CpModel, rows: list[IntVar]) -> None:
        """A layer is inside only where its predecessors are."""
        for source, target in self._problem.precedence:
            if rows[source] is not rows[target]:
                model.add_implication(rows[target], rows[source])

    def _crossings(self, model: CpModel, rows: list[IntVar], inside: Mask, outside: Mask) -> list[Term]:
        """Σ bytes · (inside[source] - inside[last reader]), over the tensors that may cross."""
        terms: list[Term] = []
        for crossing in self._problem.crossings:
            size, last = int(self._crossing[crossing.tensor]), list(crossing.last_readers)
            if not size or outside[crossing.source] or inside[last].all():
                continue
            sink = rows[last[0]]
            if len(last) > 1:
                sink = model.new_bool_var("")
                for reader in last:
                    model.add_implication(sink, rows[reader])
            terms += [(rows[crossing.source], size), (sink, -size)]
        return terms
