"""Stages of a request on its FPGAs, at one micro-batch size: what stays on the chip, seconds and traffic."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bapipe.cost.fpga.demand import Demand, demands, off_chip_rate
from bapipe.cost.fpga.residency import Chip, Residency, chip_of, reside
from bapipe.cost.fpga.stage import Setting, StageSeconds, stage_seconds
from bapipe.problem import Device, DeviceKind, PlanRequest


def costs_by_shape(request: PlanRequest, kind: DeviceKind) -> bool:
    """Whether the costs of `kind` are worked out from shapes: an FPGA for which the profile has no measured times.

    Times that were measured on the kind, or that are to be carried to it from another (`measured_on`), are taken as
    they are, as on any other kind; so are those of kind `reference` where no layer says its shape.
    """
    if kind.fpga is None or request.measured_on is not None:
        return False
    layers = request.profile.layers
    if any(time.device_kind == kind.name for layer in layers for time in layer.times):
        return False
    return any(layer.operators is not None for layer in layers) or not any(layer.times for layer in layers)


def update_bandwidth(request: PlanRequest, kind: DeviceKind, device: Device) -> float | None:
    """Bytes a second at which a device updates its weights: those off chip of an FPGA that is costed by shape, at the
    device's speed; of others the memory bandwidth of the kind. None: the update takes no time.
    """
    if kind.fpga is not None and costs_by_shape(request, kind):
        return off_chip_rate(kind.fpga, device)
    return kind.memory_bandwidth_bytes_per_s


def fpga_table(request: PlanRequest, microbatch_size: int) -> FpgaTable:
    """The table of a request, the same one every time: what is simulated again and again is worked out once."""
    return _table(_Same(request), microbatch_size)


class FpgaTable:
    """Residencies of a request's stages; demands and residencies that were worked out once are kept."""

    def __init__(self, request: PlanRequest, microbatch_size: int) -> None:
        self._request, self._microbatch_size = request, microbatch_size
        self._kinds = {kind.name: kind for kind in request.cluster.kinds}
        self._position = {layer.id: k for k, layer in enumerate(request.profile.layers)}
        self._demands: dict[tuple[str, float, float | None], tuple[Demand, ...]] = {}
        self._residencies: dict[tuple[object, ...], Residency] = {}

    def demands(self, device: Device, forward_share: float | None = None) -> tuple[Demand, ...]:
        """The demand of every layer, in the order of `profile.layers`."""
        key = device.kind, device.speed, forward_share
        if key not in self._demands:
            self._demands[key] = demands(self._request, device, self._microbatch_size, forward_share)
        return self._demands[key]

    def chip(self, device: Device) -> Chip:
        """The on-chip memory of a device that may hold what stays, and the rate of its memory off chip."""
        fpga = self._kinds[device.kind].fpga
        if fpga is None:
            raise ValueError(f"device {device.id!r} is no FPGA")
        return chip_of(fpga, off_chip_rate(fpga, device))

    def stage(self, layers: Sequence[str], device: Device, input_bytes: float, setting: Setting) -> Residency:
        """What stays on `device` of a stage of `layers` (ids, in topological order) that receives `input_bytes` for
        each micro-batch.
        """
        key = tuple(layers), device.kind, device.speed, input_bytes, setting
        if key not in self._residencies:
            own = self.own(layers, device, setting)
            own[0] = own[0].with_input(input_bytes, training=self._request.task == "training")
            self._residencies[key] = reside(own, self.chip(device), setting.in_flight)
        return self._residencies[key]

    def seconds(
        self, layers: Sequence[str], device: Device, input_bytes: float, setting: Setting, again: Collection[str]
    ) -> StageSeconds:
        """What such a stage takes, `again` being its layers that are recomputed."""
        found = self.stage(layers, device, input_bytes, setting)
        own, rate = self.own(layers, device, setting), self.chip(device).bandwidth_bytes_per_s
        return stage_seconds(found, own, again, rate)

    def own(self, layers: Sequence[str], device: Device, setting: Setting) -> list[Demand]:
        """The demands of so many layers, one by one."""
        demands = self.demands(device, setting.forward_share)
        return [demands[self._position[layer]] for layer in layers]


@dataclass(frozen=True, eq=False)
class _Same:
    """A request as a key by identity: two that say the same are told apart, which costs work and no truth."""

    request: PlanRequest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.request is self.request

    def __hash__(self) -> int:
        return id(self.request)


@lru_cache(maxsize=16)
def _table(same: _Same, microbatch_size: int) -> FpgaTable:
    return FpgaTable(same.request, microbatch_size)
