"""The variables of a mixed-integer program in PuLP, and what is said with them.

`within[l][s]` is 1 when layer l is in stage s or an earlier one, `last[t][s]` when all readers of tensor t are, for all
stages but the last; `chosen[c]` when candidate c is the one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pulp

from bapipe.candidates import Candidate
from bapipe.formulations.problem import BottleneckProblem, Partition

Terms = dict[pulp.LpVariable, float]


@dataclass
class Sum:
    """Σ factor · variable + constant, of parts that are never negative and come to `most` together at most."""

    terms: Terms = field(default_factory=dict)
    constant: float = 0.0
    most: float = 0.0

    def add(self, other: Sum, factor: float = 1.0) -> None:
        """Adds another, times a factor that is not negative."""
        self.constant += factor * other.constant
        self.most += factor * other.most
        for variable, own in other.terms.items():
            self.terms[variable] = self.terms.get(variable, 0.0) + factor * own

    def without(self, least: float) -> Sum:
        """The same without factors that are at most `least`."""
        kept = {variable: factor for variable, factor in self.terms.items() if abs(factor) > least}
        return Sum(kept, self.constant, self.most)


class Program:
    """The program of one problem, so far without constraints but those that give the variables their meaning."""

    def __init__(self, problem: BottleneckProblem) -> None:
        self.problem = problem
        self.lp = pulp.LpProblem("bottleneck", pulp.LpMinimize)
        self.stages = range(problem.most_stages)
        self._names = 0
        self.chosen = {candidate: self.binary() for candidate in problem.candidates}
        self.within = self._rows()
        self.last = {crossing.tensor: self._readers(crossing.last_readers) for crossing in problem.crossings}

    def variable(self, least: float, most: float, category: str = pulp.LpContinuous) -> pulp.LpVariable:
        """A variable between bounds."""
        self._names += 1
        return self.lp.add_variable(f"v{self._names}", least, most, category)

    def binary(self) -> pulp.LpVariable:
        """A variable that is 0 or 1."""
        return self.variable(0, 1, pulp.LpInteger)

    def require(self, terms: Terms, least: float | None = None, most: float | None = None) -> None:
        """least <= Σ factor · variable <= most."""
        expression = pulp.LpAffineExpression(terms)
        if least is not None:
            self.lp += expression >= least
        if most is not None:
            self.lp += expression <= most

    def require_for(self, candidates: Iterable[Candidate], total: Sum, rest: Terms, most: float) -> None:
        """total + rest <= most where one of the candidates is chosen; elsewhere the total may be all that it can be."""
        own = self.among(candidates)
        slack = max(0.0, total.most - most) if len(own) < len(self.chosen) else 0.0
        penalty = dict.fromkeys(own, slack) if slack else {}
        self.require(total.terms | rest | penalty, most=most + slack - total.constant)

    def at_least(self, variable: pulp.LpVariable, total: Sum) -> None:
        """total <= variable."""
        self.require({variable: 1.0} | {other: -factor for other, factor in total.terms.items()}, least=total.constant)

    def among(self, candidates: Iterable[Candidate]) -> Terms:
        """Σ chosen[c]: whether the candidate that is chosen is one of these."""
        return {self.chosen[candidate]: 1.0 for candidate in candidates}

    def used(self, stage: int) -> Terms:
        """Whether there is a stage of this number."""
        return self.among(candidate for candidate in self.chosen if candidate.num_devices > stage)

    def held(self, layer: int, stage: int) -> Sum:
        """Whether a stage has a layer: within[l][s] - within[l][s - 1]."""
        last = stage == self.stages[-1]
        terms: Terms = {} if last else {self.within[layer][stage]: 1.0}
        if stage:
            terms[self.within[layer][stage - 1]] = -1.0
        return Sum(terms, float(last), 1.0)

    def partition(self, value: Callable[[pulp.LpVariable], float | None]) -> Partition:
        """The partition that a solution is."""
        candidate = max(self.chosen, key=lambda c: value(self.chosen[c]) or 0.0)
        stages: list[list[int]] = [[] for _ in range(candidate.num_devices)]
        for layer, row in enumerate(self.within):
            first = sum((value(variable) or 0.0) < 0.5 for variable in row)
            stages[min(first, candidate.num_devices - 1)].append(layer)
        return self.problem.partition(candidate, stages)

    def _rows(self) -> list[list[pulp.LpVariable]]:
        """[layers][all stages but the last]; the layers of a group share their row."""
        rows: list[list[pulp.LpVariable]] = [[] for _ in self.problem.graph.layers]
        for group in self.problem.together:
            row = [self.binary() for _ in self.stages[:-1]]
            for layer in group:
                rows[layer] = row
        return rows

    def _readers(self, last_readers: tuple[int, ...]) -> list[pulp.LpVariable]:
        """[all stages but the last] at most what each last reader has."""
        if len(last_readers) == 1:
            return self.within[last_readers[0]]
        row = [self.variable(0, 1) for _ in self.stages[:-1]]
        for s in self.stages[:-1]:
            for reader in last_readers:
                self.require({row[s]: 1.0, self.within[reader][s]: -1.0}, most=0.0)
        return row
