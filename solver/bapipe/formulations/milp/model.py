"""The bottleneck problem as a mixed-integer program in PuLP: constraints and objective, one method each.

Written apart from the CP-SAT model, over the same problem, so that each can be held against the other. Seconds are in
units of a lower bound, so that the objective is about 1.
"""

from __future__ import annotations

from itertools import pairwise

from bapipe.formulations.fixing import Reachable
from bapipe.formulations.milp.memory import limit_memory
from bapipe.formulations.milp.program import Program, Sum
from bapipe.formulations.milp.traffic import Traffic
from bapipe.formulations.problem import BottleneckProblem

LEAST_FACTOR = 1e-12
"""Of the objective: what is less changes nothing that a float solver can tell apart."""

MARGIN = 1e-6
"""Relative: bounds of the load leave more room than a float solver's tolerance, so that it finds what is on them."""


class PulpModel:
    """Minimise `load`, the largest stage load × M in units of `unit_s`, which is at most `most_s` seconds."""

    def __init__(self, problem: BottleneckProblem, unit_s: float, most_s: float) -> None:
        self.problem, self.unit_s, self.most_s = problem, unit_s, most_s
        self.program = Program(problem)
        least_s = min(problem.least_s, most_s)
        self.load = self.program.variable(least_s / unit_s * (1 - MARGIN), most_s / unit_s * (1 + MARGIN))
        self.program.lp += self.load
        self.traffic = Traffic(self.program)
        self._choose_one()
        self._order_layers()
        self._fill_stages()
        self._end_with_the_last()
        self._place_pins()
        self._leave_out_of_reach()
        self._limit_loads()
        limit_memory(self.program, self.traffic)

    def _choose_one(self) -> None:
        """Σ_c chosen[c] = 1."""
        self.program.require(self.program.among(self.program.chosen), least=1.0, most=1.0)

    def _order_layers(self) -> None:
        """within[l][s] <= within[l][s + 1]; within[target][s] <= within[source][s]."""
        within = self.program.within
        for layers in self.problem.together:
            for before, after in pairwise(within[layers[0]]):
                self.program.require({before: 1.0, after: -1.0}, most=0.0)
        for source, target in self.problem.precedence:
            if within[source] is not within[target]:
                for one, other in zip(within[target], within[source], strict=True):
                    self.program.require({one: 1.0, other: -1.0}, most=0.0)

    def _fill_stages(self) -> None:
        """Σ_l held[l][s] >= used[s], unless stages may be empty."""
        if self.problem.may_be_empty:
            return
        for s in self.program.stages:
            total = Sum()
            for layer in range(len(self.program.within)):
                total.add(self.program.held(layer, s))
            unused = dict.fromkeys(self.program.used(s), -1.0)
            self.program.require(total.terms | unused, least=-total.constant)

    def _end_with_the_last(self) -> None:
        """within[l][s] + used[s + 1] >= 1: behind the last stage nothing is left."""
        for s in self.program.stages[1:]:
            used = self.program.used(s)
            if len(used) < len(self.program.chosen):
                for layers in self.problem.together:
                    self.program.require({self.program.within[layers[0]][s - 1]: 1.0} | used, least=1.0)

    def _place_pins(self) -> None:
        """First: within stage 0. Last: not within a stage behind which another is used. A device: held by its stage."""
        for layer, stage in self.problem.first_or_last:
            for s, variable in enumerate(self.program.within[layer]):
                if stage == "first":
                    self.program.require({variable: 1.0}, least=1.0)
                else:
                    self.program.require({variable: 1.0} | self.program.used(s + 1), most=1.0)
        for layer, position in self.problem.on_device:
            self.program.require(self.program.used(position) or {self.load: 0.0}, least=1.0)
            if position in self.program.stages:
                held = self.program.held(layer, position)
                self.program.require(held.terms or {self.load: 0.0}, least=1.0 - held.constant)

    def _leave_out_of_reach(self) -> None:
        """Layers before or behind which there is too much work for a stage."""
        reachable = Reachable(self.problem, self.most_s)
        for layer, row in enumerate(self.program.within):
            for s in reachable.too_early(layer):
                row[s].upBound = 0
            for s in reachable.too_late(layer):
                row[s].lowBound = 1

    def _limit_loads(self) -> None:
        """M · (work, exchange, or both) <= load where its micro-batch size is chosen."""
        mode = self.problem.request.communication
        for size, candidates in self.problem.by_size.items():
            for s in range(max(candidate.num_devices for candidate in candidates)):
                loads = [self._work(size, s)]
                if mode == "overlap":
                    loads.append(self._exchange(size, s))
                if mode == "serial":
                    loads[0].add(self._exchange(size, s))
                for load in loads:
                    self.program.require_for(candidates, load.without(LEAST_FACTOR), {self.load: -1.0}, 0.0)

    def _work(self, size: int, stage: int) -> Sum:
        """Σ_l work_s[l] · held[l][s]."""
        total, count = Sum(), self.problem.num_microbatches(size)
        for layer, seconds in enumerate(self.problem.costs(size).work_s[stage]):
            total.add(self.program.held(layer, stage), self._units(count * float(seconds)))
        return total

    def _exchange(self, size: int, stage: int) -> Sum:
        """What a stage receives and sends, there and in training back: latency + bytes / bandwidth of each way."""
        total, count = Sum(), self.problem.num_microbatches(size) * self.problem.directions
        tensor_bytes = self.problem.costs(size).tensor_bytes
        for way, carried in self.traffic.carried.items():
            link = self.problem.link(*way)
            if stage in way and link.latency_s:
                total.add(Sum({self.traffic.busy[way]: 1.0}, most=1.0), self._units(count * link.latency_s))
            if stage in way and link.bandwidth_bytes_per_s is not None:
                for tensor, crosses in carried.items():
                    seconds = count * float(tensor_bytes[tensor]) / link.bandwidth_bytes_per_s
                    total.add(crosses, self._units(seconds))
        return total

    def _units(self, seconds: float) -> float:
        """Seconds in units; what is longer than the largest load is cut to twice that."""
        return min(seconds, 2 * self.most_s) / self.unit_s
