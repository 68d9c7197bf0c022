"""What a plan costs: its step replayed, with the use of devices, links and memory. No search, no formulation.

A pipeline of single devices whose links keep out of each other's way and of compute, and data parallelism, are replayed
in one sweep (`replay`, `chain_simulation`); every other plan event by event (`events`, `event_simulation`). Both give
the same times where both apply. Peak memory follows from the orders alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from bapipe.cost.collectives import ring_channels
from bapipe.cost.transfer import Channel, channel
from bapipe.errors import Fault, InvalidInputError
from bapipe.graph import graph_of
from bapipe.no_flush import in_a_row, no_flush_order_faults, steps_drawn
from bapipe.orders import read_codes, read_orders
from bapipe.plan import Plan
from bapipe.simulator.chain_simulation import simulate_chain, simulate_orders
from bapipe.simulator.event_simulation import simulate_events
from bapipe.simulator.simulation import LinkUse, Operations, Simulation, Transfers
from bapipe.structure import stage_by_layer, structure_faults

__all__ = ["LinkUse", "Operations", "Simulation", "Transfers", "drawn", "replay_faults", "simulate", "simulate_orders"]


def simulate(plan: Plan) -> Simulation:
    """Replays one step of `plan`, from its layers, devices and orders; the figures that it declares are not read.

    Raises:
        InvalidInputError: every fault of the plan's structure or orders, `unsupported` for what cannot be simulated
            yet; `missing_split` for a split backward without times; `deadlock` for orders that wait for each other.
    """
    schedule = plan.schedule
    faults = structure_faults(plan)
    if faults or schedule is None:
        raise InvalidInputError(faults)
    apart = schedule.weight_versions is None and _keeps_apart(plan)
    codes = read_codes(plan, schedule) if apart else None
    if codes is None:
        return simulate_events(plan, schedule)
    return simulate_chain(plan, schedule, codes)


def replay_faults(plan: Plan) -> list[Fault]:
    """What keeps `plan` from being replayed, as far as that shows without replaying it: its structure, its orders."""
    schedule = plan.schedule
    faults = structure_faults(plan)
    if faults or schedule is None:
        return faults
    if schedule.weight_versions is None and read_codes(plan, schedule) is not None:
        return []
    _, faults = read_orders(plan, schedule)
    return faults or list(no_flush_order_faults(plan, schedule))


def drawn(plan: Plan, simulation: Simulation) -> Simulation:
    """What a picture of `plan` shows: its step or, without a flush, so many in a row that the pipeline is full."""
    steps = steps_drawn(plan)
    if steps == 1:
        return simulation
    return replace(simulate(in_a_row(plan, steps)), peak_memory_bytes=simulation.peak_memory_bytes)


def _keeps_apart(plan: Plan) -> bool:
    """Whether every link is fed by one device alone and holds none, so that no queue of events is needed."""
    request = plan.request
    replicated = any(len(stage.devices) > 1 for stage in plan.stages)
    special = any(stage.recomputed_layers or stage.forward_share is not None for stage in plan.stages)
    if request.profile.tied_parameters or special:
        return False
    if replicated and len(plan.stages) > 1:
        return False
    if request.cluster.skip_tensors == "direct" and _skips(plan):
        return False
    return all(way.nic is None and way.link.mode == "overlapped" for way in _channels(plan))


def _skips(plan: Plan) -> bool:
    layers, stage_of = plan.request.profile.layers, stage_by_layer(plan)
    graph = graph_of(plan.request.profile)
    stages = [stage_of[layers[index].id] for index in graph.layers]
    return any(stages[reader] > stages[t.source] + 1 for t in graph.tensors for reader in t.consumers)


def _channels(plan: Plan) -> Iterator[Channel]:
    cluster = plan.request.cluster
    devices = {device.id: device for device in cluster.devices}
    for before, after in pairwise(plan.stages):
        if before.devices[0] != after.devices[0]:
            yield channel(cluster, devices[before.devices[0]], devices[after.devices[0]])
    for stage in plan.stages:
        yield from ring_channels(cluster, [devices[name] for name in stage.devices])
