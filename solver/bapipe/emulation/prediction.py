"""What a plan's prediction leaves out: FIFOs of finite depth, which the search takes as without limit."""

from __future__ import annotations

from bapipe.cost.fpga.table import costs_by_shape
from bapipe.emulation.emulate import emulate
from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe.quantities import seconds_text

MAX_OPERATIONS = 1_000
"""Stages × micro-batches up to which a plan is emulated for a warning: a fraction of a second."""

LONGER = 1e-3
"""Relative: a step that is longer by less is as predicted."""


def fifo_warnings(plan: Plan) -> list[str]:
    """How much longer a step is than predicted, where FIFOs fill up; why there is none, where they are too small."""
    if plan.schedule is None or plan.prediction is None or plan.schedule.weight_versions is not None:
        return []
    if len(plan.stages) * plan.schedule.num_microbatches > MAX_OPERATIONS or not _is_finite(plan):
        return []
    try:
        step_s, predicted_s = emulate(plan).report.step_time_s, plan.prediction.step_time_s
    except InvalidInputError as error:
        return [f"the plan cannot be emulated as the boards are: {error.faults[0].detail}"]
    if step_s is None or step_s <= predicted_s * (1 + LONGER):
        return []
    return [
        f"FIFOs fill up: emulated, a step takes {seconds_text(step_s)} instead of {seconds_text(predicted_s)}; the "
        "search takes them as without limit. Larger fifo_bytes or a faster link would help"
    ]


def _is_finite(plan: Plan) -> bool:
    """Whether all boards in use are costed by shape, and one has a FIFO of finite depth in front of a link."""
    used = {name for stage in plan.stages for name in stage.devices}
    names = {device.kind for device in plan.request.cluster.devices if device.id in used}
    kinds = [kind for kind in plan.request.cluster.kinds if kind.name in names]
    if len(plan.stages) == 1 or not all(costs_by_shape(plan.request, kind) for kind in kinds):
        return False
    return any(kind.fpga is not None and kind.fpga.fifo_bytes is not None for kind in kinds)
