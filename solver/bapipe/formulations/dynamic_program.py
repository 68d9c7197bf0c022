"""Exact dynamic programming over cuts: split a model into stages so that the largest stage value is least.

With `best[k][c]` the least largest value of k stages that make up cut c (from the front), or the layers outside it
(from the back): best[k+1][c] = min over cuts b of max(value(b, c), best[k][b]). For chains this is Bokhari's recursion
(1988), over the lattice of predecessor-closed sets that of Tarnawski et al. (2020). Cuts whose work cannot be done in
the stages on either side of them, within a budget a stage, are left out: that keeps it exact below the budget, and
fast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bapipe.cuts import Array, CutSpace, Indices
from bapipe.formulations.base import OutOfTimeError, Stop

Side = Literal["front", "back"]

StageValue = Callable[[Indices, Indices, int], Array]
"""(inner cuts, outer cuts, number of stages already placed) -> value; infinity: not allowed. The cuts broadcast."""

BLOCK = 1_000_000
"""Entries of (rows × columns) handled at once: 8 MB an array."""


@dataclass(frozen=True)
class MinMax:
    """The recursion over the `usable` cuts of `space`.

    A stage does at most `budget` of `work` ([cuts], never falling from a cut to a larger one), on top of the `toll` of
    its two cuts; `value` is infinite for stages that break this.
    """

    space: CutSpace
    value: StageValue
    work: Array
    toll: Array
    usable: Indices
    stop: Stop
    budget: float = float("inf")
    combine: np.ufunc = np.maximum

    def tables(self, num_stages: int, side: Side) -> list[Array]:
        """[stages - 1][cuts] least largest value on that side of each cut, in exactly so many stages."""
        best = np.full(self.space.size, np.inf)
        best[0 if side == "front" else -1] = 0.0
        tables = []
        for placed in range(num_stages):
            best = self._one_more_stage(best, placed, num_stages, side)
            tables.append(best)
        return tables

    def _one_more_stage(self, best: Array, placed: int, num_stages: int, side: Side) -> Array:
        following = np.full(self.space.size, np.inf)
        rows = self._by_work(self.usable[self._in_budget(self.usable, placed + 1, num_stages, side)])
        columns = self._by_work(np.flatnonzero(best < np.inf))
        for block in _blocks(rows, len(columns)):
            if self.stop():
                raise OutOfTimeError
            near = self._within_budget(block, columns, side)
            if len(near):
                following[block] = self._least(block, near, best, placed, side)
        return following

    def _least(self, rows: Indices, columns: Indices, best: Array, placed: int, side: Side) -> Array:
        row, column = rows[:, None], columns[None, :]
        inner, outer = (row, column) if side == "back" else (column, row)
        values = np.where(self.space.inside(inner, outer), self.value(inner, outer, placed), np.inf)
        return np.asarray(self.combine(values, best[columns][None, :]).min(axis=1))

    def _in_budget(self, cuts: Indices, done: int, num_stages: int, side: Side) -> np.ndarray:
        if np.isinf(self.budget):
            return np.ones(len(cuts), dtype=np.bool_)
        inside = self.work[cuts]
        done_work, rest = (inside, self.work[-1] - inside) if side == "front" else (self.work[-1] - inside, inside)
        toll = self.toll[cuts]
        return (done_work + toll <= done * self.budget) & (rest + toll <= (num_stages - done) * self.budget)

    def _within_budget(self, rows: Indices, columns: Indices, side: Side) -> Indices:
        low, high = self.work[rows[0]], self.work[rows[-1]]
        low, high = (low, high + self.budget) if side == "back" else (low - self.budget, high)
        work = self.work[columns]
        return columns[np.searchsorted(work, low) : np.searchsorted(work, high, side="right")]

    def _by_work(self, cuts: Indices) -> Indices:
        return np.asarray(cuts[np.argsort(self.work[cuts], kind="stable")])


def first_solution(recursion: MinMax, tables: list[Array], target: float) -> tuple[int, ...]:
    """Cuts c_1 … c_S of value at most `target`, from tables of side `back`; of several, the first in the order of cuts:
    the fewest layers on the first stage, then on the second, and so on.
    """
    cuts, inner = [], 0
    for placed in range(len(tables) - 1, -1, -1):
        columns = np.flatnonzero(tables[placed - 1] <= target) if placed else np.array([recursion.space.size - 1])
        row = np.array([inner])
        reaches = (recursion.value(row, columns, placed) <= target) & recursion.space.inside(row, columns)
        inner = int(columns[np.flatnonzero(reaches)[0]])
        cuts.append(inner)
    return tuple(cuts)


def _blocks(rows: Indices, num_columns: int) -> list[Indices]:
    if not len(rows) or not num_columns:
        return []
    size = max(1, min(256, BLOCK // num_columns))
    return [rows[start : start + size] for start in range(0, len(rows), size)]
