"""Orders of operations, a row a rank, none made by BaPipe: from definitions, from torch, from a simple solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch.distributed.pipelining import schedules

Orders = tuple[tuple[str, ...], ...]
Layout = tuple[tuple[int, ...], ...]
"""The ranks of each stage."""


def alternating(stage: int, microbatches: Sequence[int], warm_up: int) -> tuple[str, ...]:
    """So many forwards, then a forward and a backward in turn."""
    order = [f"{stage}F{k}" for k in microbatches[:warm_up]]
    for place, k in enumerate(microbatches):
        order += [f"{stage}F{later}" for later in microbatches[place + warm_up : place + warm_up + 1]]
        order.append(f"{stage}B{k}")
    return tuple(order)


def one_stage_a_rank(name: str, stage_ranks: Layout, num_microbatches: int) -> Orders:
    """The named schedules of one stage a rank, from their definitions; replicas take micro-batches in turn."""
    last = len(stage_ranks) - 1
    orders = {}
    for stage, ranks in enumerate(stage_ranks):
        warm_up = {"gpipe": num_microbatches, "1f1b": last - stage, "1f1b-so": 2 * (last - stage)}[name]
        for replica, rank in enumerate(ranks):
            mine = range(replica, num_microbatches, len(ranks))
            orders[rank] = alternating(stage, mine, warm_up)
    return tuple(orders[rank] for rank in sorted(orders))


def greedy(stage_ranks: Layout, num_microbatches: int, *, split: bool) -> Orders:
    """What a simple solver makes of any placement: each rank in turn executes what it can, backwards first, W last."""
    last, done = len(stage_ranks) - 1, set[str]()
    orders: dict[int, list[str]] = {rank: [] for ranks in stage_ranks for rank in ranks}
    total = num_microbatches * len(stage_ranks) * (3 if split else 2)
    while len(done) < total:
        ready: dict[int, dict[str, str]] = {}
        for stage in reversed(range(last + 1)):
            for k in reversed(range(num_microbatches)):
                rank = stage_ranks[stage][k % len(stage_ranks[stage])]
                for kind in _ready(stage, k, last, done, split=split):
                    ready.setdefault(rank, {})[kind] = f"{stage}{kind}{k}"
        for rank, kinds in ready.items():
            name = next(kinds[kind] for kind in ("B", "I", "F", "W") if kind in kinds)
            orders[rank].append(name)
            done.add(name)
    return tuple(tuple(orders[rank]) for rank in sorted(orders))


def _ready(stage: int, k: int, last: int, done: set[str], *, split: bool) -> Iterator[str]:
    backward = "I" if split else "B"
    needs = {"F": [f"{stage - 1}F{k}"] if stage else []}
    needs[backward] = [f"{stage}F{k}", *([f"{stage + 1}{backward}{k}"] if stage < last else [])]
    if split:
        needs["W"] = [f"{stage}I{k}"]
    for kind, before in needs.items():
        if f"{stage}{kind}{k}" not in done and done.issuperset(before):
            yield kind


def interleaved(ranks: int, num_microbatches: int) -> Orders:
    """torch's interleaved 1F1B with two stages a rank in a loop."""
    return _of_torch("ScheduleInterleaved1F1B", ranks, num_microbatches)


def interleaved_zero_bubble(ranks: int, num_microbatches: int) -> Orders:
    """torch's interleaved zero-bubble schedule with two stages a rank in a loop, its backward split."""
    return _of_torch("ScheduleInterleavedZeroBubble", ranks, num_microbatches)


def zb_v(ranks: int, num_microbatches: int) -> Orders:
    """torch's ZB-V: two stages a rank in a V, its backward split. It needs 2N micro-batches or more."""
    return _of_torch("ScheduleZBVZeroBubble", ranks, num_microbatches)


def layout_of(orders: Orders) -> Layout:
    """The rank of each stage, as orders have it in which no stage has replicas."""
    placed = {int(name.partition("F")[0]): rank for rank, order in enumerate(orders) for name in order if "F" in name}
    return tuple((placed[stage],) for stage in sorted(placed))


def _of_torch(name: str, ranks: int, num_microbatches: int) -> Orders:
    """The compute operations of a schedule of torch; nothing of it is executed."""
    schedule: Any = object.__new__(getattr(schedules, name))
    schedule.pp_group_size, schedule._num_stages, schedule._n_microbatches = ranks, 2 * ranks, num_microbatches
    schedule.n_local_stages, schedule.num_stages = 2, 2 * ranks
    schedule.number_of_rounds = max(1, num_microbatches // ranks)
    schedule.microbatches_per_round = num_microbatches // schedule.number_of_rounds
    orders = []
    split = name != "ScheduleInterleaved1F1B"
    for rank in range(ranks):
        actions = [str(a) for a in schedule._calculate_single_rank_operations(rank) if a is not None]
        orders.append(tuple(part for action in actions for part in (_split(action) if split else [action])))
    return tuple(orders)


def _split(action: str) -> list[str]:
    """torch writes an I and its W as a B where they are neighbours."""
    return [action.replace("B", "I"), action.replace("B", "W")] if "B" in action else [action]
