"""Every stage fits its device, whichever schedule, micro-batch size and number of stages are chosen.

    static + K · stash + received activations + received gradients + sent ones + work space + tied copies <= limit

as in `bapipe.cost.memory`, with K micro-batches in flight. One constraint for each stage, micro-batch size and K.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ortools.sat.python.cp_model import IntVar

from bapipe.candidates import Candidate
from bapipe.cost.memory import num_buffers, usable_bytes
from bapipe.formulations.cp_sat.traffic import Traffic
from bapipe.formulations.cp_sat.variables import Term, Variables, total
from bapipe.formulations.ticks import ByteUnits, Rounding, byte_units


class Memory:
    """The limits of the devices. `exact`: bytes are counted as they are, so that what fits here fits."""

    def __init__(self, variables: Variables, traffic: Traffic, rounding: Rounding) -> None:
        self._variables, self._traffic, self._rounding = variables, traffic, rounding
        self._units = self._byte_units()
        self._spaces: dict[int, list[Term]] = {}
        self._copies: dict[tuple[int, int], IntVar] = {}

    @property
    def exact(self) -> bool:
        """Whether no size was rounded."""
        return self._units.exact

    def limit(self) -> None:
        """Adds the constraints of all devices that have a limit that can be exceeded."""
        problem = self._variables.problem
        for stage in self._variables.stages:
            limit = problem.limit_bytes(stage)
            if limit == float("inf"):
                continue
            most = self._units.count(usable_bytes(limit), "down")
            for (size, in_flight), candidates in self._situations(stage).items():
                terms = list(self._stage_bytes(size, stage, in_flight))
                if sum(factor * variable.domain.max() for variable, factor in terms if factor > 0) > most:
                    self._variables.enforce(total(terms) <= most, self._variables.among(candidates))

    def _situations(self, stage: int) -> dict[tuple[int, int], list[Candidate]]:
        """Candidates with that stage by (micro-batch size, micro-batches in flight)."""
        found: dict[tuple[int, int], list[Candidate]] = defaultdict(list)
        for candidate in self._variables.chosen:
            if candidate.num_devices > stage:
                key = candidate.microbatch_size, self._variables.problem.in_flight(candidate, stage)
                found[key].append(candidate)
        return found

    def _stage_bytes(self, size: int, stage: int, in_flight: int) -> Iterator[Term]:
        variables, problem = self._variables, self._variables.problem
        costs = problem.costs(size)
        for layer, (static, stash) in enumerate(zip(costs.static_bytes, costs.stash_bytes, strict=True)):
            yield from variables.held(layer, stage, self._count(float(static + in_flight * stash)))
        for number, tied in enumerate(costs.tied):
            yield self._copy(number, stage), self._count(tied.static_bytes)
        received, others = num_buffers(
            problem.request.cluster.receive_buffers, in_flight, problem.num_microbatches(size)
        )
        gradients = others * problem.training
        yield from self._buffers(size, self._traffic.into(stage), received + gradients)
        yield from self._buffers(size, self._traffic.out_of(stage), others + gradients)
        yield from self._space(size, stage)

    def _buffers(self, size: int, routes: Iterator[object], count: int) -> Iterator[Term]:
        tensor_bytes = self._variables.problem.costs(size).tensor_bytes
        for route in routes:
            for tensor, crosses in route.tensors.items():  # type: ignore[attr-defined]
                amount = self._count(count * float(tensor_bytes[tensor]))
                yield from ((variable, sign * amount) for variable, sign in crosses)

    def _copy(self, number: int, stage: int) -> IntVar:
        """Whether a stage has one of the layers that share parameters: at least each held[l][s]."""
        if (number, stage) not in self._copies:
            variables = self._variables
            size = next(iter(variables.problem.by_size))
            copy = self._copies[number, stage] = variables.model.new_bool_var("")
            for layer in variables.problem.costs(size).tied[number].layers:
                variables.model.add(total(variables.held(layer, stage)) <= copy)
        return self._copies[number, stage]

    def _space(self, size: int, stage: int) -> list[Term]:
        """The largest work space of the layers of a stage: at least workspace · held[l][s] for each."""
        if stage not in self._spaces:
            amounts = [self._count(float(each)) for each in self._variables.problem.costs(size).workspace_bytes]
            self._spaces[stage] = []
            if any(amounts):
                space = self._variables.model.new_int_var(0, max(amounts), "")
                for layer, amount in enumerate(amounts):
                    if amount:
                        self._variables.model.add(total(self._variables.held(layer, stage, amount)) <= space)
                self._spaces[stage] = [(space, 1)]
        return self._spaces[stage]

    def _count(self, size: float) -> int:
        return self._units.count(size, self._rounding)

    def _byte_units(self) -> ByteUnits:
        problem = self._variables.problem
        sizes: list[float] = []
        most = 0.0
        for size in problem.by_size:
            costs, count = problem.costs(size), problem.num_microbatches(size)
            own = (costs.static_bytes, costs.stash_bytes, costs.workspace_bytes, costs.tensor_bytes)
            tied = [copy.static_bytes for copy in costs.tied]
            sizes += [float(value) for values in own for value in values] + tied
            most = max(most, float(sum(values.sum() for values in own) + sum(tied)) * 6 * max(count, 1))
        return byte_units(sizes, most)
