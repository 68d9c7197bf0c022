"""The bottleneck problem as a mixed-integer program in PuLP: constraints and objective, one method each.

Written apart from the CP-SAT model, over the same problem, so that each can be held against the other. `within[l, s]`
is 1 when layer l is in stage s or an earlier one, `last[t, s]` when all readers of tensor t are. Seconds are in units
of a lower bound, so that the objective is about 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import pulp

from bapipe.candidates import Candidate
from bapipe.cost.memory import num_buffers, usable_bytes
from bapipe.formulations.fixing import Reachable
from bapipe.formulations.problem import BottleneckProblem, Partition

Terms = dict[pulp.LpVariable, float]

LEAST_COEFFICIENT = 1e-12
"""Relative: what is less changes no objective that a float solver can tell apart."""


class PulpModel:
    """Minimise the largest stage load × M, in units of `unit_s`, which is at most `most_s` seconds."""

    def __init__(self, problem: BottleneckProblem, unit_s: float, most_s: float) -> None:
        self.problem, self.unit_s, self.most_s = problem, unit_s, most_s
        self.program = pulp.LpProblem("bottleneck", pulp.LpMinimize)
        self.stages = range(problem.most_stages)
        self._names = 0
        self.load = self._variable(1.0 if problem.least_s >= unit_s else 0.0, most_s / unit_s * (1 + 1e-9))
        self.program += self.load
        self.chosen = {candidate: self._binary() for candidate in problem.candidates}
        self.within = self._rows()
        self.last = {c.tensor: self._readers(c.last_readers) for c in problem.crossings}
        self._add(dict.fromkeys(self.chosen.values(), 1.0), least=1.0, most=1.0)
        self._order_layers()
        self._use_stages()
        self._place_pins()
        self._leave_out_of_reach()
        self._carry_tensors()
        self._limit_loads()
        self._limit_memory()

    def partition(self, value: Callable[[pulp.LpVariable], float | None]) -> Partition:
        """The partition that a solution is."""
        candidate = max(self.chosen, key=lambda c: value(self.chosen[c]) or 0.0)
        stages: list[list[int]] = [[] for _ in range(candidate.num_devices)]
        for layer in range(len(self.problem.graph.layers)):
            first = sum(1 for s in self.stages[:-1] if (value(self.within[layer][s]) or 0.0) < 0.5)
            stages[min(first, candidate.num_devices - 1)].append(layer)
        return self.problem.partition(candidate, stages)

    def _variable(self, least: float, most: float, category: str = pulp.LpContinuous) -> pulp.LpVariable:
        self._names += 1
        return self.program.add_variable(f"v{self._names}", least, most, category)

    def _binary(self) -> pulp.LpVariable:
        return self._variable(0, 1, pulp.LpInteger)

    def _add(self, terms: Terms, least: float | None = None, most: float | None = None) -> None:
        """least <= Σ coefficient · variable <= most."""
        expression = pulp.LpAffineExpression(terms)
        if least is not None:
            self.program += expression >= least
        if most is not None:
            self.program += expression <= most

    def _among(self, candidates: Iterable[Candidate]) -> Terms:
        """Σ chosen[c]: whether the candidate that is chosen is one of these."""
        return {self.chosen[candidate]: 1.0 for candidate in candidates}

    def _used(self, stage: int) -> Terms:
        return self._among(candidate for candidate in self.chosen if candidate.num_devices > stage)

    def _rows(self) -> list[list[pulp.LpVariable]]:
        """[layers][all stages but the last]; a group shares its row."""
        rows: list[list[pulp.LpVariable]] = [[] for _ in self.problem.graph.layers]
        for group in self.problem.together:
            row = [self._binary() for _ in self.stages[:-1]]
            for layer in group:
                rows[layer] = row
        return rows

    def _readers(self, last_readers: tuple[int, ...]) -> list[pulp.LpVariable]:
        """[all stages but the last] at most each last reader's own."""
        if len(last_readers) == 1:
            return self.within[last_readers[0]]
        row = [self._variable(0, 1) for _ in self.stages[:-1]]
        for s in self.stages[:-1]:
            for reader in last_readers:
                self._add({row[s]: 1.0, self.within[reader][s]: -1.0}, most=0.0)
        return row

    def _held(self, layer: int, stage: int, amount: float = 1.0) -> tuple[Terms, float]:
        """amount · (within[l, s] - within[l, s - 1]), as terms and a constant."""
        terms: Terms = {}
        last = stage == self.stages[-1]
        if not last:
            terms[self.within[layer][stage]] = amount
        if stage:
            terms[self.within[layer][stage - 1]] = -amount
        return terms, amount if last else 0.0

    def _order_layers(self) -> None:
        """within[l, s] <= within[l, s + 1]; within[target, s] <= within[source, s]."""
        for layers in self.problem.together:
            row = self.within[layers[0]]
            for before, after in pairwise(row):
                self._add({before: 1.0, after: -1.0}, most=0.0)
        for source, target in self.problem.precedence:
            if self.within[source] is not self.within[target]:
                for one, other in zip(self.within[target], self.within[source], strict=True):
                    self._add({one: 1.0, other: -1.0}, most=0.0)

    def _use_stages(self) -> None:
        """Σ_l held[l, s] >= used[s]; within[l, s] >= 1 - used[s + 1]."""
        for s in () if self.problem.may_be_empty else self.stages:
            sums = _Sum()
            for layer in range(len(self.within)):
                sums.add(*self._held(layer, s))
            sums.add(dict.fromkeys(self._used(s), -1.0))
            self._add(sums.terms, least=-sums.constant)
        for s in self.stages[1:]:
            if len(self._used(s)) < len(self.chosen):
                for layers in self.problem.together:
                    self._add({self.within[layers[0]][s - 1]: 1.0} | self._used(s), least=1.0)

    def _place_pins(self) -> None:
        """First: within stage 0. Last: not within a stage behind which another is used. A device: held by its stage."""
        for layer, stage in self.problem.first_or_last:
            for s in self.stages[:-1]:
                if stage == "first":
                    self._add({self.within[layer][s]: 1.0}, least=1.0)
                else:
                    self._add({self.within[layer][s]: 1.0} | self._used(s + 1), most=1.0)
        for layer, position in self.problem.on_device:
            self._add(self._used(position) or {self.load: 0.0}, least=1.0)
            if position in self.stages:
                terms, constant = self._held(layer, position)
                self._add(terms or {self.load: 0.0}, least=1.0 - constant)

    def _leave_out_of_reach(self) -> None:
        """Layers before or behind which there is too much work for a stage."""
        reachable = Reachable(self.problem, self.most_s)
        for layer, row in enumerate(self.within):
            for s in reachable.too_early(layer):
                row[s].upBound = 0
            for s in reachable.too_late(layer):
                row[s].lowBound = 1

    def _carry_tensors(self) -> None:
        """`carried[i, j][t]`: terms and a constant that say whether tensor t goes from stage i to stage j.

        Relayed over the cut behind stage i: within[source, i] - last[t, i]. Direct: at least held[source, i] +
        reads[t, j] - 1, where reads[t, j] is at least each held[reader, j].
        """
        self.carried: dict[tuple[int, int], dict[int, tuple[Terms, float]]] = defaultdict(dict)
        relayed = self.problem.request.cluster.skip_tensors == "relay"
        for crossing in self.problem.crossings:
            tensor, source = crossing.tensor, self.within[crossing.source]
            for j in self.stages[1:]:
                if relayed:
                    last = self.last[tensor]
                    terms = {} if last is source else {source[j - 1]: 1.0, last[j - 1]: -1.0}
                    self.carried[j - 1, j][tensor] = terms, 0.0
                    continue
                reads = self._variable(0, 1)
                for reader in crossing.readers:
                    self._at_least(reads, self._held(reader, j))
                for i in range(j):
                    sent, sums = self._variable(0, 1), _Sum()
                    sums.add(*self._held(crossing.source, i))
                    sums.add({reads: 1.0}, -1.0)
                    self._at_least(sent, (sums.terms, sums.constant))
                    self.carried[i, j][tensor] = {sent: 1.0}, 0.0
        self.busy = {way: self._busy(way) for way in self.carried if self.problem.link(*way).latency_s}

    def _busy(self, way: tuple[int, int]) -> pulp.LpVariable:
        """Whether anything goes that way: at least whether each tensor does."""
        busy = self._variable(0, 1)
        for carried in self.carried[way].values():
            self._at_least(busy, carried)
        return busy

    def _at_least(self, variable: pulp.LpVariable, what: tuple[Terms, float]) -> None:
        terms, constant = what
        self._add({variable: 1.0} | {other: -factor for other, factor in terms.items()}, least=constant)

    def _limit_loads(self) -> None:
        """M · (work, exchange, or both) <= load where its micro-batch size is chosen."""
        mode = self.problem.request.communication
        for size, candidates in self.problem.by_size.items():
            for s in range(max(candidate.num_devices for candidate in candidates)):
                work, exchange = _Sum(), _Sum()
                self._add_work(work, size, s)
                if mode != "none":
                    self._add_exchange(work if mode == "serial" else exchange, size, s)
                for sums in (work, exchange):
                    sums.drop_below(LEAST_COEFFICIENT)
                    if sums.terms or sums.constant:
                        self._enforce(sums, {self.load: -1.0}, 0.0, candidates)

    def _enforce(self, sums: _Sum, rest: Terms, limit: float, candidates: Iterable[Candidate]) -> None:
        """Σ + rest <= limit where one of the candidates is chosen; elsewhere Σ may be as large as it can be."""
        own = self._among(candidates)
        slack = max(0.0, sums.most - limit)
        terms = sums.terms | rest
        if len(own) < len(self.chosen):
            terms |= dict.fromkeys(own, slack)
            limit += slack
        self._add(terms, most=limit - sums.constant)

    def _add_work(self, sums: _Sum, size: int, stage: int) -> None:
        count = self.problem.num_microbatches(size)
        for layer, seconds in enumerate(self.problem.costs(size).work_s[stage]):
            sums.add(*self._held(layer, stage, self._units(count * float(seconds))))

    def _add_exchange(self, sums: _Sum, size: int, stage: int) -> None:
        count = self.problem.num_microbatches(size) * self.problem.directions
        tensor_bytes = self.problem.costs(size).tensor_bytes
        for way, carried in self.carried.items():
            if stage not in way:
                continue
            link = self.problem.link(*way)
            if link.latency_s:
                sums.add({self.busy[way]: self._units(count * link.latency_s)})
            if link.bandwidth_bytes_per_s is not None:
                for tensor, (terms, constant) in carried.items():
                    units = self._units(count * float(tensor_bytes[tensor]) / link.bandwidth_bytes_per_s)
                    sums.add({variable: factor * units for variable, factor in terms.items()}, constant * units)

    def _units(self, seconds: float) -> float:
        """Seconds in units; what is longer than the largest load is cut to twice that."""
        return min(seconds, 2 * self.most_s) / self.unit_s

    def _limit_memory(self) -> None:
        """static + K · stash + buffers + copies + work space <= limit, where the schedule keeps K in flight."""
        for stage in self.stages:
            limit = self.problem.limit_bytes(stage)
            if limit == float("inf"):
                continue
            situations: dict[tuple[int, int], list[Candidate]] = defaultdict(list)
            for candidate in self.chosen:
                if candidate.num_devices > stage:
                    situations[candidate.microbatch_size, self.problem.in_flight(candidate, stage)].append(candidate)
            extra = self._space_and_copies(stage)
            for (size, in_flight), candidates in situations.items():
                sums = _Sum()
                for terms, constant in (*extra, *self._stage_bytes(size, stage, in_flight)):
                    sums.add(terms, constant)
                sums.divide(max(limit, 1.0))
                if sums.most * max(limit, 1.0) > usable_bytes(limit):
                    self._enforce(sums, {}, usable_bytes(limit) / max(limit, 1.0), candidates)

    def _stage_bytes(self, size: int, stage: int, in_flight: int) -> Iterator[tuple[Terms, float]]:
        costs, training = self.problem.costs(size), self.problem.training
        count, policy = self.problem.num_microbatches(size), self.problem.request.cluster.receive_buffers
        for layer, (static, stash) in enumerate(zip(costs.static_bytes, costs.stash_bytes, strict=True)):
            yield self._held(layer, stage, float(static + in_flight * stash))
        received, others = num_buffers(policy, in_flight, count)
        for way, carried in self.carried.items():
            if stage in way:
                buffers = (received if way[1] == stage else others) + others * training
                for tensor, (terms, constant) in carried.items():
                    amount = buffers * float(costs.tensor_bytes[tensor])
                    yield {variable: factor * amount for variable, factor in terms.items()}, constant * amount

    def _space_and_copies(self, stage: int) -> list[tuple[Terms, float]]:
        """The largest work space of a stage's layers, and a copy of parameters that any of them shares."""
        costs = self.problem.costs(next(iter(self.problem.by_size)))
        found: list[tuple[Terms, float]] = []
        largest = float(costs.workspace_bytes.max())
        if largest:
            space = self._variable(0, 1)
            for layer, amount in enumerate(costs.workspace_bytes):
                self._at_least(space, self._held(layer, stage, float(amount) / largest))
            found.append(({space: largest}, 0.0))
        for tied in costs.tied:
            copy = self._variable(0, 1)
            for layer in tied.layers:
                self._at_least(copy, self._held(layer, stage))
            found.append(({copy: tied.static_bytes}, 0.0))
        return found


class _Sum:
    """A sum of terms and constants, and the most that its non-negative parts can come to."""

    def __init__(self) -> None:
        self.terms: Terms = {}
        self.constant = 0.0
        self.most = 0.0

    def add(self, terms: Terms, constant: float = 0.0) -> None:
        """Adds what lies between 0 and the largest of its factors, or the constant."""
        self.most += max([constant, *terms.values()])
        self.constant += constant
        for variable, factor in terms.items():
            self.terms[variable] = self.terms.get(variable, 0.0) + factor

    def divide(self, by: float) -> None:
        """Divides everything."""
        self.terms = {variable: factor / by for variable, factor in self.terms.items()}
        self.constant /= by
        self.most /= by

    def drop_below(self, least: float) -> None:
        """Leaves out factors that are nearly nothing."""
        self.terms = {variable: factor for variable, factor in self.terms.items() if abs(factor) > least}
