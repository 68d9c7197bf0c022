"""The bottleneck problem in whole numbers: constraints and objective, one method each with its formula."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from bapipe.formulations.cp_sat.memory import Memory
from bapipe.formulations.cp_sat.traffic import Traffic
from bapipe.formulations.cp_sat.variables import Term, Variables, total
from bapipe.formulations.fixing import Reachable
from bapipe.formulations.problem import BottleneckProblem, Partition
from bapipe.formulations.ticks import Rounding, Ticks


class PipelineModel:
    """Minimise `load`, in ticks, the largest over the stages of load × M."""

    def __init__(self, problem: BottleneckProblem, ticks: Ticks, least_s: float, rounding: Rounding) -> None:
        self.problem, self.ticks = problem, ticks
        self.variables = Variables(problem)
        self.model = self.variables.model
        self.load = self.model.new_int_var(ticks.down(least_s), ticks.most_ticks, "load")
        self.traffic = Traffic(self.variables)
        self.memory = Memory(self.variables, self.traffic, rounding)
        self._choose_one()
        self._keep_monotone()
        self._keep_order()
        if not problem.may_be_empty:
            self._fill_stages()
        self._end_with_the_last()
        self._place_pins()
        self._leave_out_of_reach()
        self._limit_loads()
        self.memory.limit()
        self.model.minimize(self.load)

    def hint(self, partition: Partition) -> None:
        """A partition to start from, at the largest load that is allowed."""
        self.variables.hint(partition)
        self.model.add_hint(self.load, self.ticks.most_ticks)

    def _choose_one(self) -> None:
        """Σ_c chosen[c] = 1."""
        self.model.add_exactly_one(self.variables.chosen.values())

    def _keep_monotone(self) -> None:
        """within[l][s] → within[l][s + 1]."""
        for row in self.variables.rows():
            for before, after in pairwise(row):
                self.model.add_implication(before, after)

    def _keep_order(self) -> None:
        """Stages are closed under predecessors: within[target][s] → within[source][s]."""
        within = self.variables.within
        for source, target in self.problem.precedence:
            if within[source] is not within[target]:
                for s in self.variables.stages[:-1]:
                    self.model.add_implication(within[target][s], within[source][s])

    def _fill_stages(self) -> None:
        """A stage that is used has a layer: Σ_l held[l][s] ≥ used[s]."""
        layers = range(len(self.variables.within))
        for s in self.variables.stages:
            terms = (term for layer in layers for term in self.variables.held(layer, s))
            self.model.add(total(terms) >= self.variables.used(s))

    def _end_with_the_last(self) -> None:
        """Behind the last stage that is used nothing is left: within[l][s] or used[s + 1]."""
        for s in self.variables.stages[1:]:
            used = self.variables.used(s)
            if used is not self.variables.one:
                for row in self.variables.within:
                    self.model.add_bool_or(row[s - 1], used)

    def _place_pins(self) -> None:
        """The first stage is stage 0; behind the last none is used; stage s is on the device at position s."""
        within = self.variables.within
        for layer, stage in self.problem.first_or_last:
            if stage == "first":
                self.model.add(within[layer][0] == 1)
                continue
            for s in self.variables.stages[:-1]:
                self.model.add_implication(self.variables.used(s + 1), ~within[layer][s])
        for layer, position in self.problem.on_device:
            self.model.add(self.variables.used(position) == 1)
            if position in self.variables.stages:
                self.model.add(total(self.variables.held(layer, position)) == 1)

    def _leave_out_of_reach(self) -> None:
        """Layers before or behind which there is too much work for a stage."""
        reachable = Reachable(self.problem, self.ticks.most_ticks * self.ticks.tick_s)
        for layer, row in enumerate(self.variables.within):
            for s in reachable.too_early(layer):
                self.model.add(row[s] == 0)
            for s in reachable.too_late(layer):
                self.model.add(row[s] == 1)

    def _limit_loads(self) -> None:
        """M · (work, exchange, or both) ≤ load for every stage, at the micro-batch size that is chosen."""
        mode = self.problem.request.communication
        for size, candidates in self.problem.by_size.items():
            chosen = self.variables.among(candidates)
            for s in range(max(candidate.num_devices for candidate in candidates)):
                work = list(self._work(size, s))
                exchange = [] if mode == "none" else list(self._exchange(size, s))
                parts = [work + exchange] if mode == "serial" else [work, exchange]
                for terms in filter(None, parts):
                    self.variables.enforce(total(terms) <= self.load, chosen)

    def _work(self, size: int, stage: int) -> Iterator[Term]:
        """Σ_l work_s[l] · held[l][s]."""
        count = self.problem.num_microbatches(size)
        for layer, seconds in enumerate(self.problem.costs(size).work_s[stage]):
            yield from self.variables.held(layer, stage, self.ticks.down(count * float(seconds)))

    def _exchange(self, size: int, stage: int) -> Iterator[Term]:
        """What a stage receives and sends, there and in training back: latency + bytes / bandwidth of each route."""
        count = self.problem.num_microbatches(size) * self.problem.directions
        tensor_bytes = self.problem.costs(size).tensor_bytes
        for route in (*self.traffic.into(stage), *self.traffic.out_of(stage)):
            link = self.problem.link(route.source, route.target)
            if link.latency_s:
                yield self.traffic.anything(route), self.ticks.down(count * link.latency_s)
            if link.bandwidth_bytes_per_s is None:
                continue
            for tensor, crosses in route.tensors.items():
                amount = self.ticks.down(count * float(tensor_bytes[tensor]) / link.bandwidth_bytes_per_s)
                yield from ((variable, sign * amount) for variable, sign in crosses)
