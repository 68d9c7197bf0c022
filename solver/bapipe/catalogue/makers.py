"""The plans that are compared: schedules that a request can name, and given orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bapipe.catalogue.setting import Setting, plan_of
from bapipe.plan import Plan, Schedule
from bapipe.problem import ScheduleName
from bapipe.schedules import FAMILIES, placed_orders, weight_versions

Made = Callable[[Setting], Plan]


def named(name: ScheduleName, **link: Any) -> Made:
    """A schedule that a request can name, one stage a device; the engines of a split device share it by their work."""

    def make(setting: Setting) -> Plan:
        streaming = link.get("mode") == "streaming"
        extra = {"chunks": setting.chunks} if streaming else {}
        request = setting.request(1, {**link, **extra}, "async" if streaming else "sync")
        everyone = list(range(setting.stages))
        placed = [everyone] if FAMILIES[name].replicated else [[number] for number in everyone]
        ids = [device.id for device in request.cluster.devices]
        schedule = Schedule(
            name=name,
            num_microbatches=setting.microbatches,
            microbatch_size=1,
            weight_versions=weight_versions(name, setting.stages),
            orders=placed_orders(name, [[ids[n] for n in numbers] for numbers in placed], ids, setting.microbatches),
        )
        split = FAMILIES[name].engines > 1
        return plan_of(request, placed, schedule, setting.forward_s / setting.round_s if split else None)

    return make


def given(
    orders: Callable[[Setting], tuple[tuple[str, ...], ...]], device: Callable[[int, int], int], parts: int = 1
) -> Made:
    """A schedule given as orders. `device`: where a stage is, among so many devices."""

    def make(setting: Setting) -> Plan:
        placed = [[device(stage, setting.stages)] for stage in range(parts * setting.stages)]
        return plan_of(setting.request(parts, {}), placed, custom(setting, orders(setting)))

    return make


def custom(setting: Setting, orders: tuple[tuple[str, ...], ...]) -> Schedule:
    """The schedule of given orders."""
    return Schedule(name="custom", num_microbatches=setting.microbatches, microbatch_size=1, orders=orders)
