"""Judges of plans without a flush: the same plan over more micro-batches, and the period as a largest cycle ratio."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from bapipe.plan import Plan
from judges.general import Judge

Arc = tuple[Any, Any, Fraction, int]
"""From, to, seconds, and how many micro-batches later."""


def many(plan: Plan, steps: int) -> Plan:
    """Steps that follow each other, as one of more micro-batches."""
    schedule = plan.schedule
    assert schedule is not None
    assert schedule.weight_versions is not None
    m = steps * schedule.num_microbatches
    numbers = {device.id: number for number, device in enumerate(plan.request.cluster.devices)}
    orders: list[tuple[str, ...]] = [()] * len(numbers)
    for s, (stage, versions) in enumerate(zip(plan.stages, schedule.weight_versions, strict=True)):
        order = []
        for k in range(m + versions - 1):
            order += [f"{s}F{k}"] if k < m else []
            order += [f"{s}B{k - versions + 1}"] if k >= versions - 1 else []
        orders[numbers[stage.devices[0]]] = tuple(order)
    longer = schedule.model_copy(update={"num_microbatches": m, "orders": tuple(orders)})
    request = plan.request.model_copy(update={"batch_size": m * schedule.microbatch_size})
    return plan.model_copy(update={"request": request, "schedule": longer})


def is_linear(plan: Plan) -> bool:
    """Whether transfers hold no device, have a lane of their own, and go whole."""
    links = plan.request.cluster.links
    given = [links.within_host, links.between_hosts, links.between_racks, *(pair.link for pair in links.pairs)]
    return plan.request.cluster.host_nic is None and all(link is None or link.mode == "overlapped" for link in given)


def cycle_period_s(plan: Plan) -> float:
    """Of a linear plan, M times the largest ratio of seconds to micro-batches over all cycles of what awaits what."""
    judge = Judge(plan)
    assert judge.versions is not None
    arcs: list[Arc] = []
    for s, versions in enumerate(judge.versions):
        cost = {kind: Fraction(judge.cost[s, kind, 0]) for kind in "FBO"}
        arcs += [((s, "F"), (s, "B"), cost["F"], 1 - versions), ((s, "B"), (s, "F"), cost["B"] + cost["O"], versions)]
    for parcel in judge.parcels:
        assert parcel.sender is not None
        assert parcel.reader is not None
        if parcel.sender[2] == 0:
            sender, reader, seconds = parcel.sender[:2], parcel.reader[:2], Fraction(parcel.seconds)
            made = Fraction(judge.cost[parcel.sender])
            lane = (sender, reader)
            arcs += [(sender, lane, made, 0), (lane, reader, seconds, 0), (lane, lane, seconds, 1)]
    return float(judge.m * _largest_ratio(arcs))


def _largest_ratio(arcs: list[Arc]) -> Fraction:
    """Any cycle that beats the best ratio so far is taken, until there is none."""
    best = Fraction(0)
    while cycle := _better_cycle(arcs, best):
        best = sum((arc[2] for arc in cycle), Fraction(0)) / sum(arc[3] for arc in cycle)
    return best


def _better_cycle(arcs: list[Arc], ratio: Fraction) -> list[Arc]:
    """A cycle of more seconds than `ratio` for each micro-batch, by relaxing longest paths until one closes."""
    length: dict[Any, Fraction] = {node: Fraction(0) for arc in arcs for node in arc[:2]}
    by: dict[Any, Arc] = {}
    last = None
    for _ in range(len(length) + 1):
        last = None
        for arc in arcs:
            source, target, seconds, later = arc
            reached = length[source] + seconds - ratio * later
            if reached > length[target]:
                length[target], by[target], last = reached, arc, target
    if last is None:
        return []
    for _ in length:
        last = by[last][0]
    cycle, node = [by[last]], by[last][0]
    while node != last:
        cycle.append(by[node])
        node = by[node][0]
    return cycle
