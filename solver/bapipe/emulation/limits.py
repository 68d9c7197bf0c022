"""How much is emulated: a step of more takes longer, and more memory, than anyone waits for or has."""

from __future__ import annotations

from collections.abc import Iterator

from bapipe.errors import Fault
from bapipe.plan import Plan
from bapipe.simulator.events import Job
from bapipe.simulator.flow import Flow

MAX_OPERATIONS = 2**20
"""Of all devices in a step."""

MAX_STEPS = 2**22
"""Parts of operations and chunks of tensors in a step: about two minutes, and a gigabyte."""


def order_faults(plan: Plan) -> Iterator[Fault]:
    """More operations than are emulated."""
    operations = sum(map(len, plan.schedule.orders)) if plan.schedule is not None else 0
    if operations > MAX_OPERATIONS:
        detail = (
            f"{operations} operations in a step, and at most {MAX_OPERATIONS} are emulated; "
            "use larger micro-batches, or a smaller mini-batch"
        )
        yield Fault("too_large", detail, "/schedule/orders")


def size_faults(flow: Flow, job: Job) -> Iterator[Fault]:
    """More parts and chunks than are emulated."""
    operations = sum(map(len, job.lowered.orders))
    steps = operations + sum(parts - 1 for parts in flow.parts.values()) + sum(price.chunks for price in job.prices)
    if steps > MAX_STEPS:
        detail = (
            f"{steps} parts of operations and chunks of tensors in a step, and at most {MAX_STEPS} are emulated; "
            "give the links fewer chunks, or use larger micro-batches"
        )
        yield Fault("too_large", detail, "/request/cluster/links")
