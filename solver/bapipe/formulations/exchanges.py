"""How often two neighbours stop for each other over a blocking link: from their orders alone, whatever they take."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from bapipe.lowering import Exchange, Operation, Route, lower
from bapipe.problem import ScheduleName
from bapipe.schedules import operations


def order_of(
    name: ScheduleName, stage: int, num_stages: int, num_microbatches: int, *, training: bool
) -> list[Operation]:
    """The order of one stage of a pipeline, as operations."""
    codes = operations(name, num_stages, num_microbatches, training=training)[stage]
    return [Operation(stage, "FB"[code % 2], code // 2) for code in codes]


@lru_cache(maxsize=256)
def exchanges(
    name: ScheduleName,
    stage: int,
    num_stages: int,
    num_microbatches: int,
    manner: Literal["fused", "ordered"],
    *,
    training: bool,
) -> int:
    """Exchanges between stage `stage` and the next in a step."""
    orders = [order_of(name, s, num_stages, num_microbatches, training=training) for s in (stage, stage + 1)]
    lowered = lower(orders, [Route(stage, stage + 1, 1.0)], lambda source, target, size: manner)
    return sum(isinstance(step, Exchange) for step in lowered.orders[0])
