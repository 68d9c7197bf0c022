"""Zero-bubble schedules: the backward is split, and the weight gradient W fills what would be idle.

ZB-H1 and ZB-H2 have one stage a device. Forwards and input gradients I are those of 1F1B, with a warm-up of v(N-1-s)
forwards on stage s (from 0), v = 1 and 2; each W comes v·s micro-batches after its I.

ZB-V has two stages a device, d and 2N-1-d, so that the last stage is on the first device. Device d (from 0) fills with
2(N-d)-1 forwards of its first stage and d pairs of forwards of both; then its second stage turns N-d micro-batches
around. In the steady state each of both stages in turn executes F, I and W of a micro-batch. In the end the input
gradients go first, and weight gradients fill up.

Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241; "Pipeline Parallelism with Controllable Memory",
arXiv 2405.15362.
"""

from __future__ import annotations

from collections import Counter

from bapipe.schedules.base import in_turn


def zb_h_orders(num_stages: int, num_microbatches: int, variant: int) -> tuple[tuple[str, ...], ...]:
    """The order of each device; `variant` 1: ZB-H1, 2: ZB-H2."""
    orders = []
    for stage in range(num_stages):
        forwards = [f"{stage}F{k}" for k in range(num_microbatches)]
        inputs = [f"{stage}I{k}" for k in range(num_microbatches)]
        lag = variant * stage
        order = []
        for operation in in_turn(forwards, inputs, variant * (num_stages - 1 - stage)):
            order.append(operation)
            microbatch = int(operation[len(str(stage)) + 1 :])
            if operation == inputs[microbatch] and microbatch >= lag:
                order.append(f"{stage}W{microbatch - lag}")
        late = range(max(0, num_microbatches - lag), num_microbatches)
        orders.append((*order, *(f"{stage}W{k}" for k in late)))
    return tuple(orders)


def zb_v_orders(num_devices: int, num_microbatches: int) -> tuple[tuple[str, ...], ...]:
    """The order of each device.

    Raises:
        ValueError: fewer than 2N - 1 micro-batches, which do not fill the pipeline.
    """
    if num_microbatches < 2 * num_devices - 1:
        raise ValueError(f"{num_microbatches} micro-batches, and {num_devices} devices need {2 * num_devices - 1}")
    return tuple(_vee(device, num_devices, num_microbatches) for device in range(num_devices))


def _vee(device: int, num_devices: int, num_microbatches: int) -> tuple[str, ...]:
    down, up = _Stage(device), _Stage(2 * num_devices - 1 - device)
    behind = num_devices - device
    order = [down.next("F") for _ in range(2 * behind - 1)]
    for _ in range(device):
        order += [up.next("F"), down.next("F")]
    for _ in range(behind):
        order += up.nexts("FIW")
    while up.done["F"] < num_microbatches:
        order += down.nexts("FIW" if down.done["F"] < num_microbatches else "IW") + up.nexts("FIW")
    for _ in range(device):
        order += [down.next("I"), up.next("I")]
    for _ in range(behind):
        order += down.nexts("IW")
    for stage in (up, down):
        order += [stage.next("W") for _ in range(num_microbatches - stage.done["W"])]
    return tuple(order)


class _Stage:
    """A stage while its operations are listed, those of each kind from micro-batch 0 up."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.done: Counter[str] = Counter()

    def next(self, kind: str) -> str:
        """The next operation of a kind."""
        self.done[kind] += 1
        return f"{self.number}{kind}{self.done[kind] - 1}"

    def nexts(self, kinds: str) -> list[str]:
        """One of each."""
        return [self.next(kind) for kind in kinds]
