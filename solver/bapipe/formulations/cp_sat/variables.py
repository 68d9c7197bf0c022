"""The decisions of the model: which candidate, which layers within which stages, and what crosses between stages.

`within[l][s]` is true when layer l is in stage s or an earlier one. It never falls in s; a layer is within only where
its predecessors are; and what crosses the cut behind stage s is within[source][s] - within[last reader][s], so that
loads and bytes are linear in it. A tensor with several last readers gets a virtual one behind them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ortools.sat.python.cp_model import BoolVarT, CpModel, IntVar, LinearExpr, LinearExprT

from bapipe.candidates import Candidate
from bapipe.formulations.problem import BottleneckProblem, Crossing, Partition

Term = tuple[IntVar, int]
"""A variable and its coefficient."""


def total(terms: Iterable[Term]) -> LinearExprT:
    """Σ coefficient · variable."""
    found = list(terms)
    return LinearExpr.weighted_sum([variable for variable, _ in found], [factor for _, factor in found])


class Variables:
    """The variables of one model, and what can be said with them."""

    def __init__(self, problem: BottleneckProblem) -> None:
        self.problem = problem
        self.model = CpModel()
        self.stages = range(problem.most_stages)
        self.zero, self.one = self.model.new_constant(0), self.model.new_constant(1)
        self.chosen = {candidate: self.model.new_bool_var(str(candidate)) for candidate in problem.candidates}
        self._sets: dict[frozenset[Candidate], IntVar] = {}
        self.within = self._within()
        self.sinks = {crossing.tensor: self._sink(crossing) for crossing in problem.crossings}

    def among(self, candidates: Iterable[Candidate]) -> IntVar:
        """Whether the candidate that is chosen is one of these: the sum of their choices."""
        wanted = frozenset(candidates)
        if not wanted or wanted == frozenset(self.chosen):
            return self.one if wanted else self.zero
        if wanted not in self._sets:
            own = [choice for candidate, choice in self.chosen.items() if candidate in wanted]
            self._sets[wanted] = own[0] if len(own) == 1 else self.model.new_bool_var("")
            if len(own) > 1:
                self.model.add(LinearExpr.sum(own) == self._sets[wanted])
        return self._sets[wanted]

    def used(self, stage: int) -> IntVar:
        """Whether there is a stage of this number."""
        return self.among(candidate for candidate in self.chosen if candidate.num_devices > stage)

    def rows(self) -> Iterator[list[IntVar]]:
        """Every row of `within`, those of virtual readers too, once."""
        yield from {id(row): row for row in (*self.within, *self.sinks.values())}.values()

    def held(self, layer: int, stage: int, amount: int = 1) -> Iterator[Term]:
        """`amount` where the stage has the layer."""
        if amount:
            yield self.within[layer][stage], amount
            if stage:
                yield self.within[layer][stage - 1], -amount

    def enforce(self, constraint: object, literal: BoolVarT) -> None:
        """Adds a bounded linear expression that holds where `literal` does."""
        added = self.model.add(constraint)  # type: ignore[arg-type]
        if literal is not self.one:
            added.only_enforce_if(literal)

    def hint(self, partition: Partition) -> None:
        """A partition to start from."""
        stage_of = {layer: s for s, layers in enumerate(partition.stages) for layer in layers}
        hinted: dict[int, tuple[IntVar, int]] = {}
        for layer, row in enumerate(self.within):
            hinted |= {row[s].index: (row[s], int(stage_of[layer] <= s)) for s in self.stages[:-1]}
        for crossing in self.problem.crossings:
            last, row = max(stage_of[reader] for reader in crossing.last_readers), self.sinks[crossing.tensor]
            hinted |= {row[s].index: (row[s], int(last <= s)) for s in self.stages[:-1]}
        candidate = self.problem.stands_for(partition.candidate)
        hinted |= {choice.index: (choice, int(c == candidate)) for c, choice in self.chosen.items()}
        for wanted, literal in self._sets.items():
            hinted[literal.index] = literal, int(candidate in wanted)
        for variable, value in hinted.values():
            self.model.add_hint(variable, value)

    def deciding(self) -> list[IntVar]:
        """What a partition is read from."""
        return [*self.chosen.values(), *(variable for row in self.within for variable in row)]

    def partition(self, values: list[int]) -> Partition:
        """The partition that the values of `deciding` are."""
        count = len(self.chosen)
        candidate = next(c for c, value in zip(self.chosen, values[:count], strict=True) if value)
        stages: list[list[int]] = [[] for _ in self.stages]
        for layer in range(len(self.within)):
            start = count + layer * len(self.stages)
            stages[values[start : start + len(self.stages)].index(1)].append(layer)
        return self.problem.partition(candidate, stages)

    def _within(self) -> list[list[IntVar]]:
        """[layers][stages], the layers of a group on the same row; everything is within the last stage."""
        rows: list[list[IntVar]] = [[] for _ in self.problem.graph.layers]
        for group in self.problem.together:
            row = self._row()
            for layer in group:
                rows[layer] = row
        return rows

    def _row(self) -> list[IntVar]:
        return [*(self.model.new_bool_var("") for _ in self.stages[:-1]), self.one]

    def _sink(self, crossing: Crossing) -> list[IntVar]:
        """[stages] whether all readers of a tensor are within: only where each of the last ones is."""
        last = [self.within[reader] for reader in crossing.last_readers]
        if len({id(row) for row in last}) == 1:
            return last[0]
        row = self._row()
        for s in self.stages[:-1]:
            for reader in last:
                self.model.add_implication(row[s], reader[s])
        return row
