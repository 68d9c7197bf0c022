"""A plan as a job to replay: its orders lowered, every operation, transfer and reduction priced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bapipe.cost.collectives import gradient_buckets, ring_all_reduce_s, ring_channels
from bapipe.cost.fpga.demand import Demand, off_chip_rate
from bapipe.cost.fpga.residency import Residency
from bapipe.cost.fpga.table import update_bandwidth
from bapipe.cost.memory import gradient_bytes, optimizer_traffic_bytes, tied_traffic_bytes
from bapipe.cost.routes import routes_of
from bapipe.cost.share import Share, ShareTable
from bapipe.cost.transfer import Channel, channel
from bapipe.graph import graph_of
from bapipe.lowering import Manner, Message, Operation, Route, earlier, lower, split_order, with_updates
from bapipe.plan import Plan, Schedule
from bapipe.problem import Layer, TiedParameters
from bapipe.simulator.events import Bucket, Job, Part, Price
from bapipe.simulator.settings import stage_settings
from bapipe.structure import stage_by_layer

MAKES_GRADIENTS = ("B", "W")


@dataclass
class Workload:
    """A plan's orders, one for each of its devices in pipeline order, with the costs of its parts."""

    plan: Plan
    schedule: Schedule
    devices: tuple[str, ...]
    orders: Sequence[Sequence[Operation]]
    _channels: dict[tuple[int, int], Channel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reads the request's layers and devices once."""
        request = self.plan.request
        self.training = request.task == "training"
        self.versions = self.schedule.weight_versions
        known = {device.id: device for device in request.cluster.devices}
        self.placed = [known[device] for device in self.devices]
        self.kinds = {kind.name: kind for kind in request.cluster.kinds}
        self.layers = self._layers_in_order()
        self._stages: list[list[int]] = [[] for _ in self.devices]
        numbers = {name: d for d, name in enumerate(self.devices)}
        for stage in self.plan.stages:
            for name in stage.devices:
                self._stages[numbers[name]].append(stage.index)
        self.operations = {operation for order in self.orders for operation in order}
        self.recomputed_apart = {operation.stage for operation in self.operations if operation.kind == "R"}
        self.shares = self._shares()
        self.update_s = [self.optimizer_s(d) for d in range(len(self.devices))]
        self.updating = [d for d, seconds in enumerate(self.update_s) if self.versions and seconds]
        self._split()

    def _split(self) -> None:
        """The orders of the devices' engines, the device of each, and what one engine awaits of the other."""
        self.tracks: list[Sequence[Operation]] = []
        self.owners: list[int] = []
        self.gates: list[tuple[Operation, Operation]] = []
        for d, order in enumerate(self.orders):
            engines: Sequence[Sequence[Operation]] = (order,)
            if self.forward_share(d) is not None:
                engines, gates = split_order(order)
                self.gates += gates
            self.tracks += engines
            self.owners += [d] * len(engines)

    def forward_share(self, device: int) -> float | None:
        """The part of a split device that its forward engine has; None: it is not split."""
        stages = self.stages_on(device)
        return self.plan.stages[stages[0]].forward_share if stages else None

    def engines(self, device: int) -> int:
        """2 where a device executes forwards and backwards side by side."""
        return 1 if self.forward_share(device) is None else 2

    def spare_versions(self, device: int) -> int:
        """How many versions of its weights a device keeps beside the newest."""
        return 0 if self.versions is None else self.versions[self.stages_on(device)[0]] - 1

    def part_of_device(self, operation: Operation, device: int) -> float:
        """The part of the device that executes an operation."""
        share = self.forward_share(device)
        if share is None:
            return 1.0
        return share if operation.kind == "F" else 1 - share

    def job(self) -> Job:
        """The job to replay."""
        lowered = lower(self.tracks, self._routes(), self.manner, self.gates)
        if self.updating:
            lowered = with_updates(lowered, self.updating)
        return Job(
            lowered=lowered,
            seconds=tuple(
                {step: self._seconds(step, d) for step in order if isinstance(step, Operation)}
                for d, order in zip(self.owners, lowered.orders, strict=True)
            ),
            prices=tuple(
                Price(0.0, ()) if message.manner == "free" else self._price(message) for message in lowered.messages
            ),
            earlier={operation: before for operation in self.operations if (before := self._earlier(operation))},
            buckets=tuple(self._buckets()) if self.training else (),
            optimizer_s=tuple(0.0 if self.versions else self.update_s[d] for d in self.owners),
            devices=tuple(self.owners),
            num_microbatches=self.schedule.num_microbatches,
            port_s=self._port_s(),
        )

    def stages_on(self, device: int) -> list[int]:
        """The stages of the device with this number."""
        return self._stages[device]

    def channel(self, source: int, target: int) -> Channel:
        """How the device of one track sends to that of another."""
        source, target = self.owners[source], self.owners[target]
        if (source, target) not in self._channels:
            cluster = self.plan.request.cluster
            self._channels[source, target] = channel(cluster, self.placed[source], self.placed[target])
        return self._channels[source, target]

    def manner(self, source: int, target: int, size_bytes: float) -> Manner:
        """How so many bytes meet the compute of both devices; between engines of one device nothing is sent."""
        if self.owners[source] == self.owners[target]:
            return "free"
        way = self.channel(source, target)
        if way.link.mode == "streaming" and size_bytes:
            return "streaming"
        if way.seconds(size_bytes) == 0.0:
            return "free"
        return way.link.exchange if way.link.mode == "blocking" else "overlapped"

    def tied_on(self, device: int) -> list[TiedParameters]:
        """The tied parameters of which a device holds a copy."""
        mine = {layer.id for stage in self.stages_on(device) for layer in self.layers[stage]}
        return [tied for tied in self.plan.request.profile.tied_parameters if mine & set(tied.layers)]

    def _layers_in_order(self) -> list[list[Layer]]:
        profile, stage_of = self.plan.request.profile, stage_by_layer(self.plan)
        layers: list[list[Layer]] = [[] for _ in self.plan.stages]
        for index in graph_of(profile).layers:
            layer = profile.layers[index]
            layers[stage_of[layer.id]].append(layer)
        return layers

    def _shares(self) -> dict[tuple[int, int], Share]:
        table = self._table = ShareTable(self.plan.request, self.schedule.microbatch_size)
        settings = self._settings = stage_settings(self.plan, self.orders)
        received = self._received = self._received_bytes()
        known: dict[tuple[int, str, float], Share] = {}
        shares = {}
        for d, device in enumerate(self.placed):
            for stage in self.stages_on(d):
                key = stage, device.kind, device.speed
                if key not in known:
                    again, inline = self.plan.stages[stage].recomputed_layers, stage not in self.recomputed_apart
                    known[key] = table.share(
                        self.layers[stage],
                        device,
                        set(again),
                        inline=inline,
                        input_bytes=received[stage],
                        setting=settings[stage],
                    )
                shares[stage, d] = known[key]
        return shares

    def _port_s(self) -> dict[Operation, float]:
        """Seconds at the memory port of what runs on FPGAs whose engines share it."""
        port_s: dict[Operation, float] = {}
        for track, device in enumerate(self.owners):
            fpga = self.kinds[self.placed[device].kind].fpga
            if self.owners.count(device) == 1 or fpga is None:
                continue
            for stage in self.stages_on(device):
                residency = self.residency(stage, device)
                if residency is not None:
                    rate = off_chip_rate(fpga, self.placed[device])
                    moved = dict(zip("FIW", map(sum, zip(*residency.off_chip_bytes, strict=True)), strict=True))
                    moved["B"] = moved["I"] + moved["W"]
                    port_s |= {o: moved[o.kind] / rate for o in self.tracks[track] if o.stage == stage}
        return port_s

    def residency(self, stage: int, device: int) -> Residency | None:
        """What stays on the chip of a device of a stage; None where its costs are not those of an FPGA by shape."""
        placed = self.placed[device]
        return self._table.residency(self.layers[stage], placed, self._received[stage], self._settings[stage])

    def recomputed(self, stage: int, device: int) -> list[Demand]:
        """What the layers of a stage that are recomputed ask of the FPGA that has it."""
        again = self.plan.stages[stage].recomputed_layers
        layers = [layer for layer in self.layers[stage] if layer.id in again]
        return self._table.demands(layers, self.placed[device], self._settings[stage]) if layers else []

    def _received_bytes(self) -> list[float]:
        """Of each stage, the bytes that reach it for a micro-batch."""
        received = [0.0] * len(self.plan.stages)
        for route in self._routes():
            received[route.target] += route.size_bytes
        return received

    def _routes(self) -> list[Route]:
        request, size = self.plan.request, self.schedule.microbatch_size
        return routes_of(request, stage_by_layer(self.plan), len(self.plan.stages), size)

    def _price(self, message: Message) -> Price:
        way = self.channel(message.source, message.target)
        chunks = self._chunks(message, way) if message.manner == "streaming" else 1
        return Price(chunks * way.seconds(message.size_bytes / chunks), way.resources, chunks)

    def _chunks(self, message: Message, way: Channel) -> int:
        """The link's chunks between asynchronous devices whose layers all emit output while they read input; else 1."""
        kinds = [self.kinds[self.placed[self.owners[d]].kind] for d in (message.source, message.target)]
        stages = message.made_by.stage, message.read_by.stage
        streamed = all(layer.streamable for stage in stages for layer in self.layers[stage])
        return way.link.chunks if streamed and all(kind.execution == "async" for kind in kinds) else 1

    def _seconds(self, operation: Operation, device: int) -> float:
        if operation.kind == "O":
            return self.update_s[device]
        return self.shares[operation.stage, device].seconds[operation.kind] / self.part_of_device(operation, device)

    def _earlier(self, operation: Operation) -> Operation | None:
        return earlier(operation, recomputed=operation.stage in self.recomputed_apart)

    def optimizer_s(self, device: int) -> float:
        """Seconds in which a device updates all its weights."""
        request, placed = self.plan.request, self.placed[device]
        bandwidth = update_bandwidth(request, self.kinds[placed.kind], placed)
        return 0.0 if bandwidth is None else self.update_bytes(device) / bandwidth

    def update_bytes(self, device: int) -> float:
        """Bytes that a device moves to update all its weights."""
        if not self.training:
            return 0.0
        request = self.plan.request
        layers = [layer for stage in self.stages_on(device) for layer in self.layers[stage]]
        moved = sum(optimizer_traffic_bytes(request, layer) for layer in layers)
        return moved + sum(tied_traffic_bytes(request, tied) for tied in self.tied_on(device))

    def _buckets(self) -> Iterator[Bucket]:
        """The gradients of every replicated stage, from its last layer back, then those of tied parameters."""
        limit = self.plan.request.gradient_bucket_bytes
        numbers = {name: d for d, name in enumerate(self.devices)}
        for stage in self.plan.stages:
            ring = [numbers[name] for name in stage.devices]
            layers = self.layers[stage.index]
            if len(ring) > 1:
                for bucket in gradient_buckets([float(gradient_bytes(layer)) for layer in layers], limit):
                    last = [layers[bucket.last_layer].id]
                    yield self._bucket(stage.index, bucket.size_bytes, ring, [(stage.index, d, last) for d in ring])
        for tied in self.plan.request.profile.tied_parameters:
            held = [
                (stage.index, numbers[name], names)
                for stage in self.plan.stages
                if (names := [layer.id for layer in self.layers[stage.index] if layer.id in tied.layers])
                for name in stage.devices
            ]
            ring = list(dict.fromkeys(d for _, d, _ in held))
            if len(ring) > 1:
                yield self._bucket(held[0][0], float(tied.parameter_bytes), ring, held)

    def _bucket(self, stage: int, size_bytes: float, ring: list[int], held: list[tuple[int, int, list[str]]]) -> Bucket:
        """Gradients that the devices of `ring` reduce; `held`: (stage, device, layers whose gradients they are)."""
        channels = ring_channels(self.plan.request.cluster, [self.placed[d] for d in ring])
        seconds = ring_all_reduce_s(channels, size_bytes)
        resources = dict.fromkeys(resource for hop in channels for resource in hop.resources) if seconds else ()
        stops = self.schedule.all_reduce == "blocking" or any(hop.link.mode == "blocking" for hop in channels)
        parts = tuple(self._part(s, d, names, stops=stops) for s, d, names in held)
        tracks = tuple(self._last_track(d) for d in ring)
        return Bucket(stage, size_bytes, Price(seconds, tuple(resources)), tracks, parts)

    def _last_track(self, device: int) -> int:
        return len(self.owners) - 1 - self.owners[::-1].index(device)

    def _part(self, stage: int, device: int, layers: list[str], *, stops: bool) -> Part:
        """When a device has the gradients of some layers of a stage: with its last backward, or after its order."""
        own = (o for o in reversed(self.orders[device]) if o.stage == stage and o.kind in MAKES_GRADIENTS)
        last = None if stops else next(own, None)
        if last is None:
            return Part(self._last_track(device), None, 0.0)
        complete_s = self.shares[stage, device].complete_s[last.kind]
        after_s = max(complete_s[layer] for layer in layers) / self.part_of_device(last, device)
        return Part(self._last_track(device), last, after_s)
