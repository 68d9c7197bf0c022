"""What the families of schedules share: the shape of an order, and its integer form.

An order of a device may be written as strings (`2F0`: stage, kind, micro-batch), as plans do, or as integers, as inner
loops do: `2k` is the forward of micro-batch k and `2k + 1` its backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

WarmUp = Callable[[int, int, int], int]
"""(stage from 0, number of stages, number of micro-batches) -> forwards before the first forward-backward pair."""


@dataclass(frozen=True)
class Family:
    """A schedule whose every order is: a warm-up of forwards, forward and backward in turn, the remaining backwards.

    `replicated`: the devices are replicas of a single stage and take micro-batches in turn; otherwise each has a
    stage of its own and sees every micro-batch. `versions`: the weight versions of a stage (from 0, of so many) where
    the pipeline is not flushed; None: it is. `engines` 2: every device is split into one for forwards and one for
    backwards, which work side by side.
    """

    name: str
    warm_up: WarmUp
    replicated: bool = False
    versions: Callable[[int, int], int] | None = None
    engines: int = 1

    def stage(self, device: int) -> int:
        """The stage that device number `device` executes."""
        return 0 if self.replicated else device

    def microbatches(self, device: int, num_devices: int, num_microbatches: int) -> range:
        """The micro-batches that device number `device` executes."""
        return range(device, num_microbatches, num_devices) if self.replicated else range(num_microbatches)


def in_turn(forwards: Sequence[T], backwards: Sequence[T], warm_up: int) -> tuple[T, ...]:
    """`warm_up` forwards, then forward and backward in turn, then the rest of the backwards; both as long."""
    count = len(forwards)
    first = min(warm_up, count)
    pairs = count - first
    order = [*forwards, *backwards]
    order[first : first + 2 * pairs : 2] = forwards[first:]
    order[first + 1 : first + 2 * pairs : 2] = backwards[:pairs]
    order[first + 2 * pairs :] = backwards[pairs:]
    return tuple(order)
