"""From a candidate and its cuts to a plan: stages priced layer by layer, orders, and what the simulator says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bapipe.candidates import DATA_PARALLEL, WITHOUT_FLUSH, Candidate
from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.cut_costs import costed_by_shape, sends_past_stages
from bapipe.cost.memory import usable_bytes
from bapipe.cost.pipeline import CostTable, stage_loads_s
from bapipe.cuts import CutSpace
from bapipe.formulations.shares import balanced_share
from bapipe.graph import Graph, graph_of
from bapipe.link_modes import PIPELINES
from bapipe.plan import Plan, Prediction, Schedule, Stage
from bapipe.problem import PlanRequest
from bapipe.schedules import FAMILIES, operations, placed_orders, weight_versions
from bapipe.schedules.forward_backward import FIXED_SHARES
from bapipe.simulator import Simulation, simulate, simulate_orders
from bapipe.simulator.replay import AllReduce

UNPRICED: dict[str, Any] = dict.fromkeys(
    ("forward_s", "backward_s", "load_s", "peak_memory_bytes", "memory_limit_bytes"), 0
)
UNPROVEN: dict[str, Any] = {"proof": None}
"""What a stage and a plan have no need of to be simulated."""


@dataclass(frozen=True)
class Found:
    """A simulated plan without its orders, small enough to be sent between processes whenever it changes."""

    candidate: Candidate
    stages: tuple[Stage, ...]
    all_reduce: AllReduce
    prediction: Prediction
    objective_s: float
    explanation: tuple[str, ...]

    @property
    def pace_s(self) -> float:
        """Seconds that a mini-batch takes: the step time or, without a flush, the period."""
        flushed = FAMILIES[self.candidate.schedule].versions is None
        return self.prediction.step_time_s if flushed else self.prediction.period_s

    def schedule(self, request: PlanRequest) -> Schedule:
        """The schedule of the plan, an order for each device of the cluster."""
        return schedule_of(request, self.candidate, [stage.devices for stage in self.stages], self.all_reduce)


def schedule_of(
    request: PlanRequest, candidate: Candidate, devices: Sequence[tuple[str, ...]], all_reduce: AllReduce
) -> Schedule:
    """The orders of `candidate`, with stages on these devices."""
    return Schedule(
        name=candidate.schedule,
        num_microbatches=candidate.num_microbatches,
        microbatch_size=candidate.microbatch_size,
        all_reduce=all_reduce,
        weight_versions=weight_versions(candidate.schedule, len(devices)),
        orders=placed_orders(
            candidate.schedule,
            devices,
            [device.id for device in request.cluster.devices],
            candidate.num_microbatches,
            training=request.task == "training",
        ),
    )


@dataclass(frozen=True)
class Draft:
    """A plan in the making: layer ids and device ids by stage, and their simulation.

    `limit_bytes` follows the devices of the simulation.
    """

    candidate: Candidate
    layers: tuple[tuple[str, ...], ...]
    devices: tuple[tuple[str, ...], ...]
    all_reduce: AllReduce
    simulation: Simulation
    loads_s: tuple[float, ...]
    limit_bytes: tuple[int | None, ...]
    shares: tuple[float, ...] = ()

    @property
    def peak_memory_bytes(self) -> tuple[float, ...]:
        """Of each stage, the most that one of its devices holds at once, reserve included."""
        peaks = dict(zip(self.simulation.devices, self.simulation.peak_memory_bytes, strict=True))
        return tuple(max(peaks[device] for device in ids) for ids in self.devices)

    @property
    def stage_limit_bytes(self) -> tuple[int | None, ...]:
        """Of each stage, the memory of its smallest device; None: unlimited."""
        limits = dict(zip(self.simulation.devices, self.limit_bytes, strict=True))
        known = [[limit for device in ids if (limit := limits[device]) is not None] for ids in self.devices]
        return tuple(min(limits, default=None) for limits in known)

    @property
    def fullest(self) -> tuple[str, float, int] | None:
        """The device with the least room beside its peak, that peak, and its limit; None where nothing is limited."""
        rows = zip(self.simulation.devices, self.simulation.peak_memory_bytes, self.limit_bytes, strict=True)
        limited = [(device, peak, limit) for device, peak, limit in rows if limit is not None]
        return max(limited, key=lambda row: row[1] / max(row[2], 1), default=None)

    @property
    def fits(self) -> bool:
        """Whether every device is within its memory."""
        pairs = zip(self.simulation.peak_memory_bytes, self.limit_bytes, strict=True)
        return all(limit is None or peak <= usable_bytes(limit) for peak, limit in pairs)

    def obeys_pins(self, request: PlanRequest) -> bool:
        """Whether every layer that is pinned to a device is on it."""
        devices = {layer: ids for layers, ids in zip(self.layers, self.devices, strict=True) for layer in layers}
        return all(pin.device is None or pin.device in devices[pin.layer] for pin in request.profile.pins)

    @property
    def preference(self) -> tuple[int, float, tuple[int, ...], int]:
        """Among plans as good: no idle device, then the least peak memory, then the fewest layers in front, then the
        schedule that tends to need less memory.
        """
        rank = (*PIPELINES, *WITHOUT_FLUSH, DATA_PARALLEL).index(self.candidate.schedule)
        return -self.candidate.num_devices, max(self.peak_memory_bytes), tuple(map(len, self.layers)), rank

    def objective_s(self, request: PlanRequest) -> float:
        """Seconds of one mini-batch: simulated, or with every stage as slow as the bottleneck and no fill."""
        if request.objective == "bottleneck":
            return max(self.loads_s) * self.candidate.num_microbatches
        return self.simulation.pace_s

    def found(self, request: PlanRequest, explanation: tuple[str, ...]) -> Found:
        """All that a plan says of this draft."""
        return Found(
            candidate=self.candidate,
            stages=self._stages(),
            all_reduce=self.all_reduce,
            prediction=self.simulation.prediction(request),
            objective_s=self.objective_s(request),
            explanation=explanation,
        )

    def _stages(self) -> tuple[Stage, ...]:
        return tuple(
            Stage(
                index=index,
                layers=self.layers[index],
                devices=self.devices[index],
                forward_share=self.shares[index] if self.shares else None,
                forward_s=cost.forward_s,
                backward_s=cost.backward_s,
                load_s=self.loads_s[index],
                peak_memory_bytes=self.peak_memory_bytes[index],
                memory_limit_bytes=self.stage_limit_bytes[index],
            )
            for index, cost in enumerate(self.simulation.cost.stages)
        )


@dataclass(frozen=True)
class Assembler:
    """Makes drafts for one request; what does not depend on the partition is read once a micro-batch size."""

    request: PlanRequest
    _tables: dict[int, CostTable] = field(default_factory=dict)

    @cached_property
    def _graph(self) -> Graph:
        return graph_of(self.request.profile)

    def pipeline(
        self, candidate: Candidate, space: CutSpace, cuts: tuple[int, ...], shares: tuple[float, ...] = ()
    ) -> Draft:
        """Stage s holds what is between cuts s and s + 1, on the device at position s."""
        return self.partition(candidate, space.stages_of(cuts), shares)

    def partition(
        self, candidate: Candidate, stages: tuple[tuple[int, ...], ...], shares: tuple[float, ...] = ()
    ) -> Draft:
        """Stage s holds the layers at these positions of the topological order, on the device at position s.

        `shares`: of a schedule that splits devices, the part of each that its forward engine has; by default balanced.
        """
        layers, order = self.request.profile.layers, self._graph.layers
        names = tuple(tuple(layers[order[position]].id for position in stage) for stage in stages)
        devices = tuple((device.id,) for device in self.request.cluster.devices[: len(stages)])
        if FAMILIES[candidate.schedule].engines > 1 and not shares:
            shares = self._balanced(candidate, names, devices)
        return self.draft(candidate, names, devices, shares=shares)

    def data_parallel(self, candidate: Candidate, all_reduce: AllReduce = "overlapped") -> Draft:
        """The whole model on each of the first devices."""
        stages = (tuple(layer.id for layer in self.request.profile.layers),)
        replicas = tuple(device.id for device in self.request.cluster.devices[: candidate.num_devices])
        return self.draft(candidate, stages, (replicas,), all_reduce)

    def draft(
        self,
        candidate: Candidate,
        layers: tuple[tuple[str, ...], ...],
        devices: tuple[tuple[str, ...], ...],
        all_reduce: AllReduce = "overlapped",
        shares: tuple[float, ...] = (),
    ) -> Draft:
        """A draft of given stages.

        Raises:
            InvalidInputError: `deadlock`, where the devices stop for each other in a circle.
        """
        request = self.request
        if self.sweeps and not shares and FAMILIES[candidate.schedule].versions is None:
            simulation = self._sweep(candidate, layers, devices, all_reduce)
        else:
            simulation = simulate(self._bare_plan(candidate, layers, devices, all_reduce, shares))
        loads_s = stage_loads_s(simulation.cost, request.communication)
        known = {device.id: memory_limit_bytes(request.cluster, device) for device in request.cluster.devices}
        limits = tuple(known[device] for device in simulation.devices)
        return Draft(candidate, layers, devices, all_reduce, simulation, loads_s, limits, shares)

    @cached_property
    def sweeps(self) -> bool:
        """Whether a step is replayed in one sweep, not event by event, for all that devices in one piece may do."""
        cluster = self.request.cluster
        links = [cluster.links.within_host, cluster.links.between_hosts, cluster.links.between_racks]
        links += [pair.link for pair in cluster.links.pairs]
        apart = all(link is None or link.mode == "overlapped" for link in links) and cluster.host_nic is None
        special = self.request.profile.tied_parameters or sends_past_stages(self.request, self._graph)
        return apart and not costed_by_shape(self.request) and not special

    def _balanced(
        self, candidate: Candidate, layers: tuple[tuple[str, ...], ...], devices: tuple[tuple[str, ...], ...]
    ) -> tuple[float, ...]:
        cost = self._table(candidate.microbatch_size).pipeline(layers, devices)
        pairs = [(np.array([stage.forward_s]), np.array([stage.backward_s])) for stage in cost.stages]
        balanced = [float(balanced_share(*pair)[0]) for pair in pairs]
        if not costed_by_shape(self.request):
            return tuple(balanced)
        return tuple(min(FIXED_SHARES, key=lambda share: abs(share - wanted)) for wanted in balanced)

    def _sweep(
        self,
        candidate: Candidate,
        layers: tuple[tuple[str, ...], ...],
        devices: tuple[tuple[str, ...], ...],
        all_reduce: AllReduce,
    ) -> Simulation:
        request, count = self.request, candidate.num_microbatches
        cost = self._table(candidate.microbatch_size).pipeline(layers, devices)
        training = request.task == "training"
        orders = operations(candidate.schedule, candidate.num_devices, count, training=training)
        return simulate_orders(request, cost, orders, count, all_reduce)

    def _bare_plan(
        self,
        candidate: Candidate,
        layers: tuple[tuple[str, ...], ...],
        devices: tuple[tuple[str, ...], ...],
        all_reduce: AllReduce,
        shares: tuple[float, ...],
    ) -> Plan:
        """What the simulator reads of a plan; made from checked parts, and not validated again."""
        stages = tuple(
            Stage.model_construct(
                index=s, layers=mine, devices=devices[s], forward_share=shares[s] if shares else None, **UNPRICED
            )
            for s, mine in enumerate(layers)
        )
        schedule = schedule_of(self.request, candidate, devices, all_reduce)
        return Plan.model_construct(
            status="feasible", request=self.request, stages=stages, schedule=schedule, **UNPROVEN
        )

    def _table(self, microbatch_size: int) -> CostTable:
        if microbatch_size not in self._tables:
            self._tables[microbatch_size] = CostTable(self.request, microbatch_size, self._graph)
        return self._tables[microbatch_size]
