"""The cost of a pipeline: seconds and bytes of each stage and of what passes between two, for one micro-batch.

`CostTable` reads a request once for a micro-batch size and then costs any number of partitions; `pipeline_cost` is the
same for a single one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import add

from bapipe.cost.collectives import gradient_buckets, ring_all_reduce_s, ring_channels
from bapipe.cost.compute import LayerSeconds, layer_seconds
from bapipe.cost.fpga.stage import Setting
from bapipe.cost.fpga.table import costs_by_shape, fpga_table, update_bandwidth
from bapipe.cost.memory import (
    StageMemory,
    gradient_bytes,
    optimizer_traffic_bytes,
    stash_bytes_per_sample,
    static_bytes,
)
from bapipe.cost.transfer import channel
from bapipe.graph import Graph, graph_of
from bapipe.problem import Communication, Device, DeviceKind, PlanRequest


@dataclass(frozen=True)
class BucketCost:
    """Gradients that the replicas of a stage reduce together, and the seconds that takes."""

    size_bytes: float
    all_reduce_s: float


@dataclass(frozen=True)
class ReplicaCost:
    """A stage on one of its devices, at the device's speed.

    `bucket_ready_s` says for each bucket of the stage how long after the start of the last backward it is complete;
    `recompute_s` are the seconds of the recomputed layers' forwards, which `backward_s` does not hold.
    """

    device: str
    forward_s: float
    backward_s: float
    optimizer_s: float
    bucket_ready_s: tuple[float, ...]
    recompute_s: float = 0.0


@dataclass(frozen=True)
class StageCost:
    """One stage for one micro-batch. `forward_s` and `backward_s`, recomputation included, are those of its slowest
    replica.

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
    """Stages in order; `boundaries[s]` is between stages s and s + 1, with every tensor that passes it relayed.

    `direct_s`: where tensors are sent past stages, [stages] the seconds of all transfers of each, both ways.
    """

    stages: tuple[StageCost, ...]
    boundaries: tuple[BoundaryCost, ...]
    training: bool
    direct_s: tuple[float, ...] | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        """The ids of all devices, stage by stage; each once, where its first stage is."""
        return tuple(dict.fromkeys(device for stage in self.stages for device in stage.devices))


def pipeline_cost(
    request: PlanRequest,
    stages: Sequence[Sequence[str]],
    devices: Sequence[Sequence[str]],
    microbatch_size: int,
    recomputed: Sequence[Collection[str]] = (),
    settings: Sequence[Setting] = (),
) -> PipelineCost:
    """The cost of the partition `stages` (layer ids) on `devices` (device ids), a sequence for each stage.

    `recomputed`: of each stage, the layers whose forward is executed again before their backward. `settings`: how each
    stage is run, on which what stays on the chip of an FPGA depends; by default with one micro-batch in flight.
    """
    return CostTable(request, microbatch_size).pipeline(stages, devices, recomputed, settings)


def stage_loads_s(cost: PipelineCost, communication: Communication) -> tuple[float, ...]:
    """Seconds that each stage needs for one micro-batch in a saturated pipeline; the largest is the bottleneck.

    With compute F + B and x the transfers of the stage, both ways: `none` F + B, `overlap` max(F + B, x), `serial`
    F + B + x. Replicas share the micro-batches. A planning model: the simulator never uses it.
    """
    crossed = [0.0, *(cut.forward_s + cut.backward_s for cut in cost.boundaries), 0.0]
    exchanged = cost.direct_s or tuple(map(add, crossed, crossed[1:]))
    return tuple(_load_s(stage, x, communication) for stage, x in zip(cost.stages, exchanged, strict=True))


def _load_s(stage: StageCost, exchange_s: float, communication: Communication) -> float:
    compute_s = (stage.forward_s + stage.backward_s) / len(stage.replicas)
    if communication == "none":
        return compute_s
    return max(compute_s, exchange_s) if communication == "overlap" else compute_s + exchange_s


@dataclass(frozen=True)
class _Part:
    """A stage to be priced: positions of its layers, of those that complete a bucket (among them), and of those that
    are recomputed; the bytes that it receives for a micro-batch; how it is run.
    """

    positions: list[int]
    last_layers: list[int]
    again: set[int]
    in_bytes: float
    setting: Setting


class CostTable:
    """Costs of a request's layers at one micro-batch size, read once, for any number of partitions.

    `graph` is that of the request's profile, where there is one already.
    """

    def __init__(self, request: PlanRequest, microbatch_size: int, graph: Graph | None = None) -> None:
        profile, cluster = request.profile, request.cluster
        graph = graph or graph_of(profile)
        layers = [profile.layers[index] for index in graph.layers]
        self._training = request.task == "training"
        self._cluster = cluster
        self._bucket_bytes = request.gradient_bucket_bytes
        self._devices = {device.id: device for device in cluster.devices}
        self._kinds = {kind.name: kind for kind in cluster.kinds}
        self._seconds: dict[str, LayerSeconds] = {}
        self._request, self._microbatch_size = request, microbatch_size
        self._fpga = fpga_table(request, microbatch_size)
        self._ids = [layer.id for layer in layers]
        self._order = graph.layers
        self._position = {layer.id: p for p, layer in enumerate(layers)}
        self._spans = [
            (t.source, t.consumers, t.bytes_per_sample * microbatch_size) for t in graph.tensors if t.consumers
        ]
        self._static = [static_bytes(request, layer) for layer in layers]
        self._stash = [stash_bytes_per_sample(request, layer) * microbatch_size for layer in layers]
        self._workspace = [float(layer.workspace_bytes) for layer in layers]
        self._gradients = [float(gradient_bytes(layer)) for layer in layers]
        self._touched = [optimizer_traffic_bytes(request, layer) for layer in layers]

    def pipeline(
        self,
        stages: Sequence[Sequence[str]],
        devices: Sequence[Sequence[str]],
        recomputed: Sequence[Collection[str]] = (),
        settings: Sequence[Setting] = (),
    ) -> PipelineCost:
        """`pipeline_cost` of the partition `stages` (layer ids) on `devices` (device ids)."""
        again = [{self._position[layer] for layer in layers} for layers in recomputed or [()] * len(stages)]
        positions = [sorted(self._position[layer] for layer in stage) for stage in stages]
        crossing = self._boundary_bytes(positions)
        boundaries = tuple(self._boundary(crossing[s], devices[s], devices[s + 1]) for s in range(len(stages) - 1))
        cuts = [0.0, *crossing, 0.0]
        run = settings or [Setting()] * len(stages)
        costs = tuple(
            self._stage(mine, devices[s], cuts[s], cuts[s + 1], again[s], run[s]) for s, mine in enumerate(positions)
        )
        return PipelineCost(costs, boundaries, self._training, self._direct_s(positions, devices))

    def _direct_s(self, positions: list[list[int]], devices: Sequence[Sequence[str]]) -> tuple[float, ...] | None:
        """[stages] seconds of what each receives and sends, there and in training back; None: tensors are relayed.

        A tensor goes once to each stage that reads it; what goes from one stage to another is one transfer.
        """
        if self._cluster.skip_tensors == "relay":
            return None
        stage_of = {p: s for s, mine in enumerate(positions) for p in mine}
        sizes: dict[tuple[int, int], float] = {}
        for source, consumers, size in self._spans:
            for target in {stage_of[consumer] for consumer in consumers} - {stage_of[source]}:
                sizes[stage_of[source], target] = sizes.get((stage_of[source], target), 0.0) + size
        exchanged = [0.0] * len(positions)
        for (source, target), size in sorted(sizes.items()):
            cut = self._boundary(size, devices[source], devices[target])
            for stage in (source, target):
                exchanged[stage] += cut.forward_s + cut.backward_s
        return tuple(exchanged)

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

    def _boundary(self, size_bytes: float, sources: Sequence[str], targets: Sequence[str]) -> BoundaryCost:
        """The slowest of the links between the devices of two stages; what stays on a device takes no time."""
        pairs = [(self._devices[a], self._devices[b]) for a in sources for b in targets]
        channels = [channel(self._cluster, source, target) for source, target in pairs if source != target]
        seconds = max((each.seconds(size_bytes) for each in channels), default=0.0)
        back_s = seconds if self._training else 0.0
        return BoundaryCost(sources[0], targets[0], size_bytes, seconds, back_s)

    def _stage(
        self,
        mine: list[int],
        devices: Sequence[str],
        in_bytes: float,
        out_bytes: float,
        again: set[int],
        setting: Setting,
    ) -> StageCost:
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
        part = _Part(mine, last_layers, again, in_bytes, setting)
        replicas = self._replicas(part, [self._devices[device] for device in devices])
        channels = ring_channels(self._cluster, [self._devices[device] for device in devices])
        buckets = tuple(
            BucketCost(bucket.size_bytes, ring_all_reduce_s(channels, bucket.size_bytes)) for bucket in filled
        )
        forward_s = max(replica.forward_s for replica in replicas)
        backward_s = max(replica.backward_s + replica.recompute_s for replica in replicas)
        return StageCost(forward_s, backward_s, memory, replicas, buckets)

    def _replicas(self, part: _Part, devices: list[Device]) -> tuple[ReplicaCost, ...]:
        """One for each of `devices`; those of one kind and speed are priced once."""
        priced = {(device.kind, device.speed): device for device in devices}
        costs = {key: self._replica(part, device) for key, device in priced.items()}
        return tuple(replace(costs[device.kind, device.speed], device=device.id) for device in devices)

    def _replica(self, part: _Part, device: Device) -> ReplicaCost:
        kind, mine = self._kinds[device.kind], part.positions
        if costs_by_shape(self._request, kind):
            return self._replica_on_fpga(part, device, kind)
        seconds = self._seconds_on(kind)
        forward_s = sum(seconds.forward_s[self._order[p]] for p in mine) / device.speed
        if not self._training:
            return ReplicaCost(device.id, forward_s, 0.0, 0.0, ())
        backwards = [seconds.backward_s[self._order[p]] / device.speed for p in reversed(mine)]
        ended = list(accumulate(backwards))
        ready = tuple(ended[len(mine) - 1 - layer] for layer in part.last_layers)
        recompute_s = sum(seconds.forward_s[self._order[p]] for p in mine if p in part.again) / device.speed
        return ReplicaCost(device.id, forward_s, ended[-1], self._optimizer_s(mine, kind, device), ready, recompute_s)

    def _replica_on_fpga(self, part: _Part, device: Device, kind: DeviceKind) -> ReplicaCost:
        """The engines of a split device work beside each other: their times, as those of the whole device."""
        layers = [self._ids[p] for p in part.positions]
        again = {self._ids[p] for p in part.again}
        found = self._fpga.seconds(layers, device, part.in_bytes, part.setting, again)
        share = part.setting.forward_share
        front, back = (1.0, 1.0) if share is None else (share, 1 - share)
        if not self._training:
            return ReplicaCost(device.id, found.forward_s * front, 0.0, 0.0, ())
        ready = tuple(found.backward_ends_s[layers[layer]] * back for layer in part.last_layers)
        backward_s, recompute_s = (found.input_s + found.weight_s) * back, found.again_s * front
        optimizer_s = self._optimizer_s(part.positions, kind, device)
        return ReplicaCost(device.id, found.forward_s * front, backward_s, optimizer_s, ready, recompute_s)

    def _optimizer_s(self, mine: list[int], kind: DeviceKind, device: Device) -> float:
        bandwidth = update_bandwidth(self._request, kind, device)
        return 0.0 if bandwidth is None else sum(self._touched[p] for p in mine) / bandwidth

    def _seconds_on(self, kind: DeviceKind) -> LayerSeconds:
        known = self._seconds.get(kind.name)
        if known is None:
            known = layer_seconds(self._request, kind, self._microbatch_size)
            self._seconds[kind.name] = known
        return known
