"""What one stage takes on one of its devices, by kind of operation, and when the gradient of each layer is complete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bapipe.cost.compute import layer_seconds, layer_splits
from bapipe.cost.fpga.demand import Demand
from bapipe.cost.fpga.residency import Residency
from bapipe.cost.fpga.stage import Setting
from bapipe.cost.fpga.table import costs_by_shape, fpga_table
from bapipe.problem import Device, Layer, PlanRequest


@dataclass(frozen=True)
class Share:
    """Seconds of one micro-batch.

    `seconds` by kind: F, B, R, and I and W where all layers' split is known. `complete_s[kind]`: how long after the
    start of a B or W the gradient of each layer (by id) is complete.
    """

    seconds: dict[str, float]
    complete_s: dict[str, dict[str, float]]


class ShareTable:
    """Shares of a request's layers at one micro-batch size; the times of a kind are read once."""

    def __init__(self, request: PlanRequest, microbatch_size: int) -> None:
        self._request = request
        kinds = {device.kind for device in request.cluster.devices}
        self._forward: dict[str, dict[str, float]] = {}
        self._backward: dict[str, dict[str, float]] = {}
        self._split: dict[str, dict[str, tuple[float, float] | None]] = {}
        self._fpga = fpga_table(request, microbatch_size)
        self._by_shape = {kind.name for kind in request.cluster.kinds if costs_by_shape(request, kind)}
        ids = [layer.id for layer in request.profile.layers]
        for kind in request.cluster.kinds:
            if kind.name in kinds - self._by_shape:
                whole = layer_seconds(request, kind, microbatch_size)
                self._forward[kind.name] = dict(zip(ids, whole.forward_s, strict=True))
                self._backward[kind.name] = dict(zip(ids, whole.backward_s, strict=True))
                self._split[kind.name] = dict(zip(ids, layer_splits(request, kind, microbatch_size), strict=True))

    def share(
        self,
        layers: Sequence[Layer],
        device: Device,
        again: Collection[str],
        *,
        inline: bool,
        input_bytes: float = 0.0,
        setting: Setting = Setting(),  # noqa: B008  # a frozen value
    ) -> Share:
        """The share of a stage's layers, in topological order, on `device`; of a split device, on the whole of it.

        `again`: the layers that are recomputed. `inline`: as part of the backward, without an operation of their own.
        What stays on the chip of an FPGA depends on the bytes received for a micro-batch, and on the `setting`.
        """
        if device.kind in self._by_shape:
            return self._on_fpga([layer.id for layer in layers], device, again, inline, input_bytes, setting)
        forward, backward, speed = self._forward[device.kind], self._backward[device.kind], device.speed
        seconds = {"F": sum(forward[layer.id] for layer in layers) / speed}
        if self._request.task == "inference":
            return Share(seconds, {})
        again_s = sum(forward[layer.id] for layer in layers if layer.id in again) / speed
        first_s = again_s if inline else 0.0
        reverse = [layer.id for layer in reversed(layers)]
        ended = list(accumulate(backward[name] / speed for name in reverse))
        seconds |= {"R": again_s, "B": first_s + ended[-1]}
        complete = {"B": {name: first_s + end for name, end in zip(reverse, ended, strict=True)}}
        split = [pair for name in reverse if (pair := self._split[device.kind][name]) is not None]
        if len(split) == len(reverse):
            ended = list(accumulate(weight_s / speed for _, weight_s in split))
            seconds |= {"I": first_s + sum(input_s for input_s, _ in split) / speed, "W": ended[-1]}
            complete["W"] = dict(zip(reverse, ended, strict=True))
        return Share(seconds, complete)

    def residency(
        self, layers: Sequence[Layer], device: Device, input_bytes: float, setting: Setting
    ) -> Residency | None:
        """What stays on the chip of such a stage; None where its costs are not worked out from shapes."""
        if device.kind not in self._by_shape:
            return None
        return self._fpga.stage([layer.id for layer in layers], device, input_bytes, setting)

    def demands(self, layers: Sequence[Layer], device: Device, setting: Setting) -> list[Demand]:
        """What layers ask of a device whose costs are worked out from shapes, one by one."""
        return self._fpga.own([layer.id for layer in layers], device, setting)

    def _on_fpga(
        self,
        layers: list[str],
        device: Device,
        again: Collection[str],
        inline: bool,
        input_bytes: float,
        setting: Setting,
    ) -> Share:
        found = self._fpga.seconds(layers, device, input_bytes, setting, again)
        part = setting.forward_share or 1.0
        seconds = {"F": found.forward_s * part}
        if self._request.task == "inference":
            return Share(seconds, {})
        rest = 1.0 if setting.forward_share is None else 1 - part
        again_s = found.again_s * part
        first_s = again_s if inline else 0.0
        whole_s = (found.input_s + found.weight_s) * rest
        seconds |= {
            "R": again_s,
            "B": first_s + whole_s,
            "I": first_s + found.input_s * rest,
            "W": found.weight_s * rest,
        }
        ends = {name: first_s + end * rest for name, end in found.backward_ends_s.items()}
        return Share(seconds, {"B": ends, "W": {name: end * rest for name, end in found.weight_ends_s.items()}})
