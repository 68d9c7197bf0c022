"""What passes between stages: relayed from each to the next, or sent direct to every stage that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from ortools.sat.python.cp_model import IntVar

from bapipe.formulations.cp_sat.variables import Term, Variables, total


@dataclass
class Route:
    """From one stage to a later one: for each tensor that may take it, terms whose sum is 1 where it does."""

    source: int
    target: int
    tensors: dict[int, tuple[Term, ...]] = field(default_factory=dict)


class Traffic:
    """The routes of all tensors."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        direct = variables.problem.request.cluster.skip_tensors == "direct"
        self.routes = list(self._direct() if direct else self._relayed())
        self._anything: dict[tuple[int, int], IntVar] = {}

    def into(self, stage: int) -> Iterator[Route]:
        """The routes that end in a stage."""
        return (route for route in self.routes if route.target == stage)

    def out_of(self, stage: int) -> Iterator[Route]:
        """The routes that begin in a stage."""
        return (route for route in self.routes if route.source == stage)

    def anything(self, route: Route) -> IntVar:
        """Whether any tensor takes a route: at least as much as each of them."""
        key = route.source, route.target
        if key not in self._anything:
            self._anything[key] = self._variables.model.new_bool_var("")
            for crosses in {terms for terms in route.tensors.values() if terms}:
                self._variables.model.add(total(crosses) <= self._anything[key])
        return self._anything[key]

    def _relayed(self) -> Iterator[Route]:
        """Over the cut behind stage s: within[source][s] - within[last reader][s]."""
        within, sinks = self._variables.within, self._variables.sinks
        for s in self._variables.stages[:-1]:
            yield Route(
                s,
                s + 1,
                {
                    crossing.tensor: ((within[crossing.source][s], 1), (sinks[crossing.tensor][s], -1))
                    for crossing in self._variables.problem.crossings
                    if within[crossing.source] is not sinks[crossing.tensor]
                },
            )

    def _direct(self) -> Iterator[Route]:
        """From stage i to stage j: at least held[source][i] + reads[j] - 1, reads[j] at least each held[reader][j]."""
        variables, model = self._variables, self._variables.model
        reads: dict[tuple[int, int], IntVar] = {}
        for crossing in variables.problem.crossings:
            for j in variables.stages[1:]:
                reads[crossing.tensor, j] = model.new_bool_var("")
                for reader in crossing.readers:
                    model.add(total(variables.held(reader, j)) <= reads[crossing.tensor, j])
        for i, j in combinations(variables.stages, 2):
            route = Route(i, j)
            for crossing in variables.problem.crossings:
                sent = model.new_bool_var("")
                both = [*variables.held(crossing.source, i), (reads[crossing.tensor, j], 1), (sent, -1)]
                model.add(total(both) <= 1)
                route.tensors[crossing.tensor] = ((sent, 1),)
            yield route
