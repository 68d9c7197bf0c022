"""From a replay to a report: what boards and links did, what it took, and what was lost."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from bapipe.cost.collectives import ring_bytes
from bapipe.cost.fpga.demand import buffer_bytes
from bapipe.cost.fpga.energy import Energy, link_energy, stage_energy, static_energy, total
from bapipe.cost.memory import optimizer_traffic_bytes
from bapipe.cost.pipeline import memory_limit_bytes
from bapipe.emulation.report import BoardReport, EmulationReport, EnergyReport, LinkReport, Loss
from bapipe.plan import Plan
from bapipe.simulator import Simulation
from bapipe.simulator.events import Job, Resource
from bapipe.simulator.flow import Flow, Flowed
from bapipe.simulator.workload import Workload


def measured(
    plan: Plan,
    work: Workload,
    job: Job,
    flow: Flow,
    flowed: Flowed,
    simulation: Simulation,
) -> EmulationReport:
    """The report of a replayed job."""
    loss = _loss(plan, work, job, flow, flowed, simulation)
    span_s = simulation.step_time_s if loss is None else loss.lost_s
    links = tuple(_links(work, job, flow, flowed, ended=loss is None))
    boards = tuple(_board(work, job, flowed, simulation, d, span_s, links) for d in range(len(work.devices)))
    return EmulationReport(
        step_time_s=simulation.step_time_s if loss is None else None,
        samples_per_s=plan.request.batch_size / span_s if loss is None and span_s else 0.0,
        predicted_step_time_s=plan.prediction.step_time_s if plan.prediction else None,
        energy=_sum([board.energy for board in boards]),
        boards=boards,
        links=links,
        loss=loss,
        warnings=plan.warnings,
    )


def _loss(plan: Plan, work: Workload, job: Job, flow: Flow, flowed: Flowed, simulation: Simulation) -> Loss | None:
    """What is lost when a board dies before its last operation, reduction or update has ended."""
    updated_s = simulation.optimizer_end_s
    dead = [d for d, at_s in flow.dies_s.items() if not flowed.finished or updated_s[d] > at_s]
    if not dead:
        return None
    orders = [operation for order in work.orders for operation in order]
    done = flowed.replayed.ends_s
    last = len(plan.stages) - 1 if not work.training else 0
    kind = "B" if work.training else "F"
    through = sum(o.kind == kind and o.stage == last and o in done for o in orders)
    return Loss(
        boards=tuple(work.devices[d] for d in dead),
        stages=tuple(sorted({stage for d in dead for stage in work.stages_on(d)})),
        lost_s=max(done.values(), default=0.0),
        forwards=(sum(o.kind == "F" and o in done for o in orders), sum(o.kind == "F" for o in orders)),
        backwards=(sum(o.kind == "B" and o in done for o in orders), sum(o.kind == "B" for o in orders)),
        microbatches=(through, work.schedule.num_microbatches),
    )


def _board(
    work: Workload,
    job: Job,
    flowed: Flowed,
    simulation: Simulation,
    d: int,
    span_s: float,
    links: Sequence[LinkReport],
) -> BoardReport:
    request, device = work.plan.request, work.placed[d]
    fpga = work.kinds[device.kind].fpga
    assert fpga is not None
    done = flowed.replayed.ends_s
    sent = sum(link.sent_bytes + link.resent_bytes for link in links if link.source == device.id)
    energies, held, traffic, resident = [link_energy(fpga, sent), static_energy(fpga, span_s)], 0, 0.0, []
    for stage in work.stages_on(d):
        residency = work.residency(stage, d)
        assert residency is not None
        forwards, backwards = (
            sum(o.stage == stage and o.kind == k and o in done for o in work.orders[d]) for k in "FB"
        )
        updated = sum(optimizer_traffic_bytes(request, layer) for layer in work.layers[stage]) * flowed.finished
        energies.append(stage_energy(fpga, request.dtype, residency, forwards, backwards, updated))
        held += residency.held_bytes
        traffic += updated + sum(f * forwards + (i + w) * backwards for f, i, w in residency.off_chip_bytes)
        resident += [f"{item.layer}:{item.name}" for items in residency.resident for item in items]
    busy_s = simulation.busy_s[d]
    return BoardReport(
        device=device.id,
        busy_s=busy_s,
        stalled_s=_stalled_s(job, flowed, d),
        utilisation=min(1.0, busy_s / span_s) if span_s else 0.0,
        on_chip_peak_bytes=float(held + buffer_bytes(fpga)),
        on_chip_capacity_bytes=float(fpga.on_chip_bytes),
        off_chip_peak_bytes=simulation.peak_memory_bytes[d],
        off_chip_capacity_bytes=_capacity(work, d),
        off_chip_traffic_bytes=traffic,
        resident=tuple(resident),
        energy=_energy_report(total(energies)),
    )


def _capacity(work: Workload, d: int) -> float | None:
    limit = memory_limit_bytes(work.plan.request.cluster, work.placed[d])
    return None if limit is None else float(limit)


def _stalled_s(job: Job, flowed: Flowed, d: int) -> float:
    starts_s, ends_s = flowed.replayed.starts_s, flowed.replayed.ends_s
    return sum(
        max(0.0, ends_s[operation] - starts_s[operation] - seconds)
        for track, order in enumerate(job.seconds)
        if job.devices[track] == d
        for operation, seconds in order.items()
        if operation in ends_s
    )


def _links(work: Workload, job: Job, flow: Flow, flowed: Flowed, *, ended: bool) -> Iterator[LinkReport]:
    """Every direction that carries something, in the order of the boards."""
    stopped, reduced = _exchanged(job, flowed), _reduced(work, job) if ended else {}
    place = {name: d for d, name in enumerate(work.devices)}
    ways = {way for way in (*flowed.sent_bytes, *stopped, *reduced) if isinstance(way, tuple) and way[0] == "link"}
    for way in sorted(ways, key=lambda way: (place[way[1]], place[way[2]])):
        beside_s, beside_bytes = (stopped.get(way, (0.0, 0.0))[k] + reduced.get(way, (0.0, 0.0))[k] for k in (0, 1))
        yield LinkReport(
            source=way[1],
            target=way[2],
            busy_s=flowed.busy_s.get(way, 0.0) + beside_s,
            sent_bytes=flowed.sent_bytes.get(way, 0.0) + beside_bytes,
            received_bytes=flowed.received_bytes.get(way, 0.0) + beside_bytes,
            resent_bytes=flowed.resent_bytes.get(way, 0.0),
            fifo_depth=flow.depths.get(way),
            fifo_peak=_fifo_peak(flowed.made_s.get(way, ()), flowed.left_s.get(way, ())),
        )


Used = dict[Resource, tuple[float, float]]
"""Seconds and bytes by link direction."""


def _exchanged(job: Job, flowed: Flowed) -> Used:
    """What was sent while both boards stood still."""
    used: Used = {}
    for number in flowed.replayed.sent_s:
        message, price = job.lowered.messages[number], job.prices[number]
        if message.manner in ("fused", "ordered"):
            seconds, size = used.get(price.resources[0], (0.0, 0.0))
            used[price.resources[0]] = seconds + price.seconds, size + message.size_bytes
    return used


def _reduced(work: Workload, job: Job) -> Used:
    """What the rings of all-reduces carried."""
    used: Used = {}
    for bucket in job.buckets:
        ring = [work.devices[job.devices[track]] for track in bucket.ring]
        for source, target in zip(ring, [*ring[1:], ring[0]], strict=True):
            seconds, size = used.get(("link", source, target), (0.0, 0.0))
            added = ring_bytes(len(ring), bucket.size_bytes)
            used["link", source, target] = seconds + bucket.price.seconds, size + added
    return used


def _fifo_peak(made_s: Sequence[float], left_s: Sequence[float]) -> int:
    """Most chunks that were made and had not left."""
    left = sorted(left_s)
    return max((count + 1 - bisect_right(left, now_s) for count, now_s in enumerate(sorted(made_s))), default=0)


def _energy_report(energy: Energy) -> EnergyReport:
    return EnergyReport(total_j=energy.total_j, **asdict(energy))


def _sum(reports: Sequence[EnergyReport]) -> EnergyReport:
    names = EnergyReport.model_fields
    return EnergyReport(**{name: sum(getattr(report, name) for report in reports) for name in names})
