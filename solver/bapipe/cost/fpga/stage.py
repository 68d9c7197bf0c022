"""What a stage takes on an FPGA, by kind of operation, and when the gradient of each layer is complete."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bapipe.cost.fpga.demand import Demand
from bapipe.cost.fpga.residency import Residency


@dataclass(frozen=True)
class Setting:
    """How a stage is run: micro-batches in flight at most, and on a split device the part of its forward engine."""

    in_flight: int = 1
    forward_share: float | None = None


@dataclass(frozen=True)
class StageSeconds:
    """Seconds of one micro-batch by phase; `again_s` those of the forwards that are executed again.

    `backward_ends_s`, `weight_ends_s`: how long after the start of a whole backward, or of the weight gradients alone,
    the gradient of each layer (by id) is complete.
    """

    forward_s: float
    input_s: float
    weight_s: float
    again_s: float
    backward_ends_s: dict[str, float]
    weight_ends_s: dict[str, float]


def stage_seconds(
    residency: Residency, demands: Sequence[Demand], again: Collection[str], bandwidth_bytes_per_s: float
) -> StageSeconds:
    """The phases of a stage; `demands` are those of its layers one by one. Layers end in reverse order backward, those
    that run as one end together.
    """
    rows = list(zip(residency.layers, residency.seconds, strict=True))[::-1]
    backward = list(accumulate(inputs + weights for _, (_, inputs, weights) in rows))
    weight = list(accumulate(weights for _, (_, _, weights) in rows))
    resident = {item for items in residency.resident for item in items}
    return StageSeconds(
        forward_s=sum(forward for _, (forward, _, _) in rows),
        input_s=sum(inputs for _, (_, inputs, _) in rows),
        weight_s=weight[-1],
        again_s=sum(
            demand.seconds(resident, bandwidth_bytes_per_s)[0] for demand in demands if demand.layers[0] in again
        ),
        backward_ends_s=_by_layer([layer for layer, _ in rows], backward),
        weight_ends_s=_by_layer([layer for layer, _ in rows], weight),
    )


def _by_layer(groups: Sequence[Demand], ends_s: Sequence[float]) -> dict[str, float]:
    return {name: end for group, end in zip(groups, ends_s, strict=True) for name in group.layers}
