"""How the stages of a plan are run: micro-batches in flight, and the engines of split devices."""

from __future__ import annotations

from collections.abc import Sequence

from bapipe.cost.fpga.stage import Setting
from bapipe.lowering import Operation
from bapipe.plan import Plan
from bapipe.simulator.occupancy import usage_of


def stage_settings(plan: Plan, orders: Sequence[Sequence[Operation]]) -> list[Setting]:
    """The setting of each stage; `orders` are those of the plan's devices, stage by stage.

    In flight is what the order of a replica says; without a flush, as many micro-batches as there are weight versions.
    """
    devices = list(dict.fromkeys(name for stage in plan.stages for name in stage.devices))
    by_device = dict(zip(devices, orders, strict=True))
    training = plan.request.task == "training"
    settings = []
    for stage in plan.stages:
        engines = 1 if stage.forward_share is None else 2
        used = (
            usage_of([o for o in by_device[name] if o.stage == stage.index], training=training, engines=engines)
            for name in stage.devices
        )
        versions = plan.schedule.weight_versions if plan.schedule else None
        in_flight = max(1, *(each.in_flight for each in used)) if versions is None else versions[stage.index]
        settings.append(Setting(in_flight, stage.forward_share))
    return settings
