"""The time from step to step when a plan is repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import TypeVar

from bapipe.cost.pipeline import PipelineCost
from bapipe.simulator.events import Job, Replayed, replay_events
from bapipe.simulator.replay import AllReduce, Timeline, replay

LONGEST_TRANSIENT = 64
"""Steps replayed in search of the steady repetition; one or two are enough unless optimizer steps dominate."""

REPLAYED_OPERATIONS, FEWEST_REPLAYS = 2**18, 4
"""Event by event, so many operations are replayed in that search, and as many steps at least."""


def period_s(cost: PipelineCost, first: Timeline, num_microbatches: int, all_reduce: AllReduce) -> float:
    """Seconds from step to step in steady repetition, where `first` is the first step.

    A device starts its next step once its own weights are updated. In inference nothing flows back, so every device and
    link direction repeats at its own pace and the slowest sets the rate. In training everything waits for everything
    else: the steps soon differ by one shift.
    """
    if not cost.training:
        return _slowest_s(cost, first, num_microbatches)
    if len(cost.stages) == 1 and not cost.stages[0].buckets:
        return first.step_time_s
    shift_s = _immediate_shift_s(first)
    return _replayed_shift_s(cost, first, num_microbatches, all_reduce) if shift_s is None else shift_s


def _slowest_s(cost: PipelineCost, timeline: Timeline, num_microbatches: int) -> float:
    devices = [track.compute_s for track in timeline.tracks]
    links = [boundary.forward_s * num_microbatches for boundary in cost.boundaries]
    return max(devices + links)


def _immediate_shift_s(first: Timeline) -> float | None:
    """The shift between the first two steps, if the second is the first one shifted; else None.

    It is when the first stage ends its step at λ on all its devices, and no other device is still updating its weights
    at λ + its own first start: then the second step meets the state of the first.
    """
    shift_s = max(track.optimizer_end_s for track in first.tracks if track.stage == 0)
    for track in first.tracks:
        if track.stage == 0 and track.optimizer_end_s < shift_s:
            return None
        if track.stage > 0 and track.optimizer_end_s > shift_s + track.starts_s[0]:
            return None
    return shift_s


def period_of_job_s(job: Job, first: Replayed, *, training: bool) -> float:
    """`period_s` of a plan that is replayed event by event. A step's transfers come before those of the next.

    In inference, where no device stops for another and nothing streams, the busiest device, link direction or card
    sets the rate.
    """
    if not training and all(message.manner in ("free", "overlapped") for message in job.lowered.messages):
        return _busiest_s(job)

    def again(timeline: Replayed) -> Replayed:
        return replay_events(job, timeline.occupied)

    affordable = max(FEWEST_REPLAYS, REPLAYED_OPERATIONS // max(1, len(first.starts_s)))
    longest = min(LONGEST_TRANSIENT, affordable)
    return _repeated_shift_s(first, again, lambda timeline: timeline.occupied.device_s, longest)


def _busiest_s(job: Job) -> float:
    resource_s: dict[Hashable, float] = defaultdict(float)
    for price in job.prices:
        for resource in price.resources:
            resource_s[resource] += price.seconds
    return max([*(sum(seconds.values()) for seconds in job.seconds), *resource_s.values()])


def _replayed_shift_s(cost: PipelineCost, first: Timeline, num_microbatches: int, all_reduce: AllReduce) -> float:
    orders = [track.order for track in first.tracks]

    def again(timeline: Timeline) -> Timeline:
        return replay(cost, orders, num_microbatches, all_reduce=all_reduce, busy=timeline.busy)

    return _repeated_shift_s(first, again, lambda timeline: timeline.busy.device_s, LONGEST_TRANSIENT)


T = TypeVar("T")


def _repeated_shift_s(
    first: T, again: Callable[[T], T], ends_of: Callable[[T], tuple[float, ...]], longest: int
) -> float:
    """Replays steps until the ends of all devices have moved by one amount since an earlier step.

    From there on everything repeats, so that amount over the steps between is the period. (After `longest` steps
    without such a recurrence: the mean over all of them.)
    """
    ends = [ends_of(first)]
    timeline = first
    for _ in range(longest):
        timeline = again(timeline)
        now = ends_of(timeline)
        for steps, before in enumerate(reversed(ends), start=1):
            growth = [after - earlier for after, earlier in zip(now, before, strict=True)]
            if max(growth) - min(growth) <= 1e-12 * max(now):
                return max(growth) / steps
        ends.append(now)
    return (max(ends[-1]) - max(ends[0])) / longest
