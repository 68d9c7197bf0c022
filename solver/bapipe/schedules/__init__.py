"""Schedules: the order in which each device executes its operations. One file a family; `FAMILIES` lists them.

The functions count stages from 0. For `data-parallel`, which has a single stage, `num_stages` is the number of its
replicas and a stage index that of a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from bapipe.problem import ScheduleName
from bapipe.schedules.base import Family, in_turn
from bapipe.schedules.data_parallel import DATA_PARALLEL
from bapipe.schedules.forward_backward import FBP_AS
from bapipe.schedules.gpipe import GPIPE
from bapipe.schedules.one_f_one_b import ONE_F_ONE_B, ONE_F_ONE_B_SO
from bapipe.schedules.pipedream import PIPEDREAM

T = TypeVar("T")

FAMILIES: dict[str, Family] = {
    family.name: family for family in (DATA_PARALLEL, GPIPE, ONE_F_ONE_B, ONE_F_ONE_B_SO, FBP_AS, PIPEDREAM)
}

__all__ = ["FAMILIES", "Family", "in_flight", "operations", "orders", "placed_orders", "warm_up", "weight_versions"]


def warm_up(name: ScheduleName, stage: int, num_stages: int, num_microbatches: int) -> int:
    """Forwards that the stage executes before it starts to alternate."""
    return FAMILIES[name].warm_up(stage, num_stages, num_microbatches)


def in_flight(name: ScheduleName, stage: int, num_stages: int, num_microbatches: int, *, training: bool = True) -> int:
    """Most micro-batches of the stage whose forward has started and whose backward has not ended; 1 in inference.

    Without a flush they may be of several mini-batches. With two engines, one more forward may start beside a backward.
    """
    family = FAMILIES[name]
    if family.versions and training:
        return family.versions(stage, num_stages)
    count = len(family.microbatches(stage, num_stages, num_microbatches))
    first = family.warm_up(stage, num_stages, num_microbatches) if training else 0
    return min(count, first + (family.engines if training else 1))


def weight_versions(name: ScheduleName, num_stages: int) -> tuple[int, ...] | None:
    """Of each stage, how many versions of its weights it keeps; None: the pipeline is flushed."""
    versions = FAMILIES[name].versions
    return None if versions is None else tuple(versions(stage, num_stages) for stage in range(num_stages))


def orders(
    name: ScheduleName, num_stages: int, num_microbatches: int, *, training: bool = True
) -> tuple[tuple[str, ...], ...]:
    """One order a device, as strings: `2F0` is the forward of micro-batch 0 in stage 2. Inference: forwards only."""
    family = FAMILIES[name]
    result = []
    for device in range(num_stages):
        stage = family.stage(device)
        mine = family.microbatches(device, num_stages, num_microbatches)
        forwards = [f"{stage}F{k}" for k in mine]
        backwards = [f"{stage}B{k}" for k in mine] if training else []
        result.append(_order(family, device, num_stages, num_microbatches, forwards, backwards))
    return tuple(result)


@lru_cache(maxsize=64)
def operations(
    name: ScheduleName, num_stages: int, num_microbatches: int, *, training: bool = True
) -> tuple[tuple[int, ...], ...]:
    """`orders` as integers: `2k` is the forward of micro-batch k, `2k + 1` its backward."""
    family = FAMILIES[name]
    result = []
    for device in range(num_stages):
        mine = family.microbatches(device, num_stages, num_microbatches)
        forwards = [2 * k for k in mine]
        backwards = [2 * k + 1 for k in mine] if training else []
        result.append(_order(family, device, num_stages, num_microbatches, forwards, backwards))
    return tuple(result)


def placed_orders(
    name: ScheduleName,
    stage_devices: Sequence[Sequence[str]],
    all_devices: Sequence[str],
    num_microbatches: int,
    *,
    training: bool = True,
) -> tuple[tuple[str, ...], ...]:
    """The orders of a plan: one for each of `all_devices`, empty where a device has no stage.

    `stage_devices` are the devices of each stage, in pipeline order.
    """
    used = [device for devices in stage_devices for device in devices]
    placed = dict(zip(used, orders(name, len(used), num_microbatches, training=training), strict=True))
    return tuple(placed.get(device, ()) for device in all_devices)


def _order(
    family: Family, device: int, num_devices: int, num_microbatches: int, forwards: list[T], backwards: list[T]
) -> tuple[T, ...]:
    if not backwards:
        return tuple(forwards)
    return in_turn(forwards, backwards, family.warm_up(device, num_devices, num_microbatches))
