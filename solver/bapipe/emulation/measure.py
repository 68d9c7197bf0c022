"""From a replay to a report: what boards and links did, what it took, and what was lost."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.collectives import ring_bytes
from bapipe.cost.fpga.demand import buffer_bytes
from bapipe.cost.fpga.energy import Energy, Executed, executed_energy, link_energy, static_energy, total
from bapipe.emulation.doubts import doubts
from bapipe.emulation.flows import loss_by_direction
from bapipe.emulation.options import EmulationOptions
from bapipe.emulation.report import BoardReport, EmulationReport, EnergyReport, LinkReport, Loss
from bapipe.lowering import BACKWARDS
from bapipe.plan import Plan
from bapipe.simulator import Simulation
from bapipe.simulator.events import Job, Resource
from bapipe.simulator.flow import Flow, Flowed
from bapipe.simulator.workload import Workload

FORWARDS = ("F",)


def measured(
    plan: Plan, work: Workload, flow: Flow, flowed: Flowed, simulation: Simulation, options: EmulationOptions
) -> EmulationReport:
    """The report of a replayed job."""
    loss = None if flowed.finished else _loss(plan, work, flowed)
    span_s = simulation.step_time_s if loss is None else loss.lost_s
    links = tuple(_links(work, flow, flowed, loss_by_direction(options)))
    boards = tuple(_board(work, flowed, simulation, d, span_s, links) for d in range(len(work.devices)))
    return EmulationReport(
        step_time_s=simulation.step_time_s if loss is None else None,
        samples_per_s=plan.request.batch_size / span_s if loss is None and span_s else 0.0,
        predicted_step_time_s=plan.prediction.step_time_s if plan.prediction else None,
        energy=_sum([board.energy for board in boards]),
        boards=boards,
        links=links,
        loss=loss,
        warnings=_warnings(plan, options, links),
    )


def _warnings(plan: Plan, options: EmulationOptions, links: Sequence[LinkReport]) -> tuple[str, ...]:
    """Those of the plan but for what is said of the profile's times, which are not used; and what is doubted here."""
    own = (text for text in plan.warnings if text not in plan.request.profile.warnings)
    return tuple(dict.fromkeys((*own, *doubts(plan, options, links))))


def _loss(plan: Plan, work: Workload, flowed: Flowed) -> Loss:
    """What is lost when a board dies before its last operation, reduction or update has ended."""
    orders = [operation for order in work.orders for operation in order]
    done = flowed.replayed.ends_s
    last = len(plan.stages) - 1 if not work.training else 0
    passed = FORWARDS if not work.training else BACKWARDS
    through = sum(o.kind in passed and o.stage == last and o in done for o in orders)
    return Loss(
        boards=tuple(work.devices[d] for d in flowed.stopped),
        stages=tuple(sorted({stage for d in flowed.stopped for stage in work.stages_on(d)})),
        lost_s=max(done.values(), default=0.0),
        forwards=(sum(o.kind in FORWARDS and o in done for o in orders), sum(o.kind in FORWARDS for o in orders)),
        backwards=(sum(o.kind in BACKWARDS and o in done for o in orders), sum(o.kind in BACKWARDS for o in orders)),
        microbatches=(through, work.schedule.num_microbatches),
    )


def _board(
    work: Workload, flowed: Flowed, simulation: Simulation, d: int, span_s: float, links: Sequence[LinkReport]
) -> BoardReport:
    fpga = work.kinds[work.placed[d].kind].fpga
    assert fpga is not None
    device, stages = work.devices[d], work.stages_on(d)
    residencies = [residency for stage in stages if (residency := work.residency(stage, d)) is not None]
    executed = [each for stage in stages for each in _executed(work, flowed, stage, d)]
    update = work.update_bytes(d) * flowed.finished
    sent = sum(link.sent_bytes + link.resent_bytes for link in links if link.source == device)
    energies = [executed_energy(fpga, work.plan.request.dtype, executed, update)]
    energies += [link_energy(fpga, sent), static_energy(fpga, span_s)]
    resident = [items for residency in residencies for items in residency.resident]
    busy_s = simulation.busy_s[d]
    return BoardReport(
        device=device,
        busy_s=busy_s,
        stalled_s=_stalled_s(flowed, d),
        utilisation=min(1.0, busy_s / span_s) if span_s else 0.0,
        on_chip_peak_bytes=float(sum(each.held_bytes for each in residencies) + buffer_bytes(fpga)),
        on_chip_capacity_bytes=float(fpga.on_chip_bytes),
        off_chip_peak_bytes=simulation.peak_memory_bytes[d],
        off_chip_capacity_bytes=_capacity(work, d),
        off_chip_traffic_bytes=update + sum(each.off_chip_bytes for each in executed),
        resident=tuple(f"{item.layer}:{item.name}" for items in resident for item in items),
        energy=_energy_report(total(energies)),
    )


def _executed(work: Workload, flowed: Flowed, stage: int, d: int) -> Iterator[Executed]:
    """What of the layers of a stage was executed on a board, and how often; forwards that came again apart."""
    residency, done = work.residency(stage, d), flowed.replayed.ends_s
    assert residency is not None
    count = Counter(o.kind for o in work.orders[d] if o.stage == stage and o in done)
    inputs, weights = count["B"] + count["I"], count["B"] + count["W"]
    for layer, moved in zip(residency.layers, residency.off_chip_bytes, strict=True):
        yield Executed(layer, moved, (count["F"], inputs, weights))
    resident = {item for items in residency.resident for item in items}
    again = count["R"] if stage in work.recomputed_apart else inputs
    for layer in work.recomputed(stage, d):
        yield Executed(layer, layer.off_chip_bytes(resident), (again, 0, 0))


def _capacity(work: Workload, d: int) -> float | None:
    limit = memory_limit_bytes(work.plan.request.cluster, work.placed[d])
    return None if limit is None else float(limit)


def _stalled_s(flowed: Flowed, d: int) -> float:
    job, starts_s, ends_s = flowed.job, flowed.replayed.starts_s, flowed.replayed.ends_s
    return sum(
        max(0.0, ends_s[operation] - starts_s[operation] - seconds)
        for track, order in enumerate(job.seconds)
        if job.devices[track] == d
        for operation, seconds in order.items()
        if operation in ends_s
    )


def _links(work: Workload, flow: Flow, flowed: Flowed, loss: Mapping[Resource, float]) -> Iterator[LinkReport]:
    """Every direction that carries something, in the order of the boards."""
    reduced = _reduced(work, flowed.job)
    place = {name: d for d, name in enumerate(work.devices)}
    ways = {way for way in (*flowed.sent_bytes, *reduced) if isinstance(way, tuple) and way[0] == "link"}
    for way in sorted(ways, key=lambda way: (place[way[1]], place[way[2]])):
        ring_s, ring_size = reduced.get(way, (0.0, 0.0))
        rate = loss.get(way, 0.0)
        yield LinkReport(
            source=way[1],
            target=way[2],
            busy_s=flowed.busy_s.get(way, 0.0) + ring_s,
            sent_bytes=flowed.sent_bytes.get(way, 0.0) + ring_size,
            received_bytes=flowed.received_bytes.get(way, 0.0) + ring_size,
            resent_bytes=flowed.resent_bytes.get(way, 0.0) + ring_size * rate / (1 - rate),
            fifo_depth=flow.depths.get(way),
            fifo_peak=_fifo_peak(flowed.made_s.get(way, ()), flowed.left_s.get(way, ())),
        )


def _reduced(work: Workload, job: Job) -> dict[Resource, tuple[float, float]]:
    """Seconds and bytes of the rings of all-reduces, by link direction."""
    used: dict[Resource, tuple[float, float]] = {}
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
