"""The cost of a pipeline: seconds and bytes of each stage and of what passes between two, for one micro-batch.

`CostTable` reads a request once for a micro-batch size and then costs any number of partitions; `pipeline_cost` is the
same for a single one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from bapipe.cost.collectives import gradient_buckets, ring_all_reduce_s, ring_links
from bapipe.cost.compute import LayerSeconds, layer_seconds
from bapipe.cost.memory import StageMemory, optimizer_traffic_bytes, stash_bytes_per_sample, static_bytes
from bapipe.cost.transfer import link_between, transfer_s
from bapipe.errors import Fault, InvalidInputError
from bapipe.graph import graph_of
from bapipe.problem import Cluster, Communication, Device, DeviceKind, Layer, PlanRequest


@dataclass(frozen=True)
class BucketCost:
    """Gradients that the replicas of a stage reduce together, and the seconds that takes."""

    size_bytes: float
    all_reduce_s: float


@dataclass(frozen=True)
class ReplicaCost:
    """A stage on one of its devices, at the device's speed.

    `bucket_ready_s` says for each bucket of the stage how long after the start of the last backward it is complete.
    """

    device: str
    forward_s: float
    backward_s: float
    optimizer_s: float
    bucket_ready_s: tuple[float, ...]


@dataclass(frozen=True)
class StageCost:
    """One stage for one micro-batch. `forward_s` and `backward_s` are those of its slowest replica.

    `buckets`, in the order of their reduction, are empty on a stage that has one device, and in inference.
    """

    forward_s: float
    backward_s: float
    memory: StageMemory[float]
    replicas: tuple[ReplicaCost, ...]
    buckets: tuple[BucketCost, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """The ids of the stage's devices."""
        return tuple(replica.device for replica in self.replicas)


@dataclass(frozen=True)
class BoundaryCost:
    """What passes between two stages for one micro-batch: activations forward, in training their gradients back."""

    source: str
    target: str
    size_bytes: float
    forward_s: float
    backward_s: float


@dataclass(frozen=True)
class PipelineCost:
    """Stages in order; `boundaries[s]` is between stages s and s + 1."""

    stages: tuple[StageCost, ...]
    boundaries: tuple[BoundaryCost, ...]
    training: bool

    @property
    def devices(self) -> tuple[str, ...]:
        """The ids of all devices, stage by stage."""
        return tuple(device for stage in self.stages for device in stage.devices)


def pipeline_cost(
    request: PlanRequest, stages: Sequence[Sequence[str]], devices: Sequence[Sequence[str]], microbatch_size: int
) -> PipelineCost:
    """The cost of the partition `stages` (layer ids) on `devices` (device ids), a sequence for each stage.

    Raises:
        InvalidInputError: `unsupported` when a stage of several has more than one device.
    """
    return CostTable(request, microbatch_size).pipeline(stages, devices)


def stage_loads_s(cost: PipelineCost, communication: Communication) -> tuple[float, ...]:
    """Seconds that each stage needs for one micro-batch in a saturated pipeline; the largest is the bottleneck."""
    padded = (None, *cost.boundaries, None)
    return tuple(load_s(stage, padded[s], padded[s + 1], communication) for s, stage in enumerate(cost.stages))


def load_s(
    stage: StageCost, before: BoundaryCost | None, after: BoundaryCost | None, communication: Communication
) -> float:
    """Seconds that a stage needs for one micro-batch in a saturated pipeline.

    With compute F + B and x the transfers over both cuts, both ways: `none` F + B, `overlap` max(F + B, x), `serial`
    F + B + x. Replicas share the micro-batches. A planning model: the simulator never uses it.
    """
    compute_s = (stage.forward_s + stage.backward_s) / len(stage.replicas)
    cuts = [cut for cut in (before, after) if cut is not None]
    exchange_s = sum(cut.forward_s + cut.backward_s for cut in cuts)
    if communication == "none":
        return compute_s
    return max(compute_s, exchange_s) if communication == "overlap" else compute_s + exchange_s


def memory_limit_bytes(cluster: Cluster, device: Device) -> int | None:
    """The bytes that a device has, by itself or by its kind; None: unlimited."""
    if device.memory_bytes is not None:
        return device.memory_bytes
    return next(kind.memory_bytes for kind in cluster.kinds if kind.name == device.kind)


class CostTable:
    """Costs of a request's layers at one micro-batch size, read once, for any number of partitions."""

    def __init__(self, request: PlanRequest, microbatch_size: int) -> None:
        profile, cluster = request.profile, request.cluster
        graph = graph_of(profile)
        layers = [profile.layers[index] for index in graph.layers]
        self._training = request.task == "training"
        self._cluster = cluster
        self._bucket_bytes = request.gradient_bucket_bytes
        self._devices = {device.id: device for device in cluster.devices}
        self._kinds = {kind.name: kind for kind in cluster.kinds}
        self._seconds: dict[str, LayerSeconds] = {}
        self._request, self._microbatch_size = request, microbatch_size
        self._order = graph.layers
        self._position = {layer.id: p for p, layer in enumerate(layers)}
        self._spans = [
            (t.source, t.consumers, t.bytes_per_sample * microbatch_size) for t in graph.tensors if t.consumers
        ]
        self._static = [static_bytes(request, layer) for layer in layers]
        self._stash = [stash_bytes_per_sample(request, layer) * microbatch_size for layer in layers]
        self._workspace = [float(layer.workspace_bytes) for layer in layers]
        self._gradients = [float(_gradient_bytes(layer)) for layer in layers]
        self._touched = [optimizer_traffic_bytes(request, layer) for layer in layers]

    def pipeline(self, stages: Sequence[Sequence[str]], devices: Sequence[Sequence[str]]) -> PipelineCost:
        """The cost of the partition `stages` (layer ids) on `devices` (device ids), a sequence for each stage.

        Raises:
            InvalidInputError: `unsupported` when a stage of several has more than one device.
        """
        _refuse_replicas_in_a_pipeline(devices)
        positions = [sorted(self._position[layer] for layer in stage) for stage in stages]
        crossing = self._boundary_bytes(positions)
        boundaries = tuple(
            self._boundary(crossing[s], devices[s][0], devices[s + 1][0]) for s in range(len(stages) - 1)
        )
        cuts = [0.0, *crossing, 0.0]
        costs = tuple(self._stage(mine, devices[s], cuts[s], cuts[s + 1]) for s, mine in enumerate(positions))
        return PipelineCost(costs, boundaries, self._training)

    def _boundary_bytes(self, positions: list[list[int]]) -> list[float]:
        """Bytes of one micro-batch over each cut: every tensor from its stage to the last that reads it, once."""
        if len(positions) == 1:
            return []
        stage_of = {p: s for s, mine in enumerate(positions) for p in mine}
        crossing = [0.0] * (len(positions) - 1)
        for source, consumers, size in self._spans:
            for cut in range(stage_of[source], max(stage_of[c] for c in consumers)):
                crossing[cut] += size
        return crossing

    def _boundary(self, size_bytes: float, source: str, target: str) -> BoundaryCost:
        link = link_between(self._cluster, self._devices[source], self._devices[target])
        seconds = transfer_s(link, size_bytes)
        return BoundaryCost(source, target, size_bytes, seconds, seconds if self._training else 0.0)

    def _stage(self, mine: list[int], devices: Sequence[str], in_bytes: float, out_bytes: float) -> StageCost:
        memory = StageMemory(
            sum(self._static[p] for p in mine),
            sum(self._stash[p] for p in mine),
            in_bytes,
            out_bytes,
            max(self._workspace[p] for p in mine),
        )
        reduced = self._training and len(devices) > 1
        gradients = [self._gradients[p] for p in mine]
        filled = gradient_buckets(gradients, self._bucket_bytes) if reduced else ()
        last_layers = [bucket.last_layer for bucket in filled]
        replicas = self._replicas(mine, [self._devices[device] for device in devices], last_layers)
        links = ring_links(self._cluster, [self._devices[device] for device in devices])
        buckets = tuple(BucketCost(bucket.size_bytes, ring_all_reduce_s(links, bucket.size_bytes)) for bucket in filled)
        slowest = max(replica.forward_s for replica in replicas), max(replica.backward_s for replica in replicas)
        return StageCost(*slowest, memory, replicas, buckets)

    def _replicas(self, mine: list[int], devices: list[Device], last_layers: list[int]) -> tuple[ReplicaCost, ...]:
        """One for each of `devices`; those of one kind and speed are priced once."""
        priced = {(device.kind, device.speed): device for device in devices}
        costs = {key: self._replica(mine, device, last_layers) for key, device in priced.items()}
        return tuple(replace(costs[device.kind, device.speed], device=device.id) for device in devices)

    def _replica(self, mine: list[int], device: Device, last_layers: list[int]) -> ReplicaCost:
        kind = self._kinds[device.kind]
        seconds = self._seconds_on(kind)
        forward_s = sum(seconds.forward_s[self._order[p]] for p in mine) / device.speed
        if not self._training:
            return ReplicaCost(device.id, forward_s, 0.0, 0.0, ())
        backwards = [seconds.backward_s[self._order[p]] / device.speed for p in reversed(mine)]
        ended = list(accumulate(backwards))
        ready = tuple(ended[len(mine) - 1 - layer] for layer in last_layers)
        return ReplicaCost(device.id, forward_s, ended[-1], self._optimizer_s(mine, kind), ready)

    def _optimizer_s(self, mine: list[int], kind: DeviceKind) -> float:
        bandwidth = kind.memory_bandwidth_bytes_per_s
        return 0.0 if bandwidth is None else sum(self._touched[p] for p in mine) / bandwidth

    def _seconds_on(self, kind: DeviceKind) -> LayerSeconds:
        known = self._seconds.get(kind.name)
        if known is None:
            known = layer_seconds(self._request, kind, self._microbatch_size)
            self._seconds[kind.name] = known
        return known


def _gradient_bytes(layer: Layer) -> int:
    return layer.parameter_bytes if layer.gradient_bytes is None else layer.gradient_bytes


def _refuse_replicas_in_a_pipeline(devices: Sequence[Sequence[str]]) -> None:
    counts = [len(ids) for ids in devices]
    faults = [
        Fault(
            "unsupported",
            f"stage {s} of {len(counts)} has {count} devices; replicate a single stage only, "
            "or give every stage one device",
            f"/stages/{s}/devices",
        )
        for s, count in enumerate(counts)
        if count > 1 and len(counts) > 1
    ]
    if faults:
        raise InvalidInputError(faults)
