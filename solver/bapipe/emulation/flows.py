"""How a plan's operations run part by part on its boards: chunks, FIFOs, memory ports, losses and deaths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import log
from random import Random

from bapipe.emulation.options import EmulationOptions
from bapipe.errors import Fault
from bapipe.lowering import Operation
from bapipe.simulator.events import Job, Resource
from bapipe.simulator.flow import Flow
from bapipe.simulator.workload import Workload


def flow_of(work: Workload, job: Job, options: EmulationOptions) -> tuple[Flow, list[Fault]]:
    """The flow of a job, and each FIFO that does not hold a chunk."""
    depths, faults = _depths(work, job)
    numbers = {name: d for d, name in enumerate(work.devices)}
    deaths = {numbers[dead.device]: dead.at_s for dead in options.dead_boards if dead.device in numbers}
    flow = Flow(_parts(job), depths, tries_of(work, job, options), deaths)
    return flow, faults


def with_losses(work: Workload, job: Job, options: EmulationOptions) -> Job:
    """The job where reductions over lossy links take as long as is to be expected: 1 / (1 - loss) of their time."""
    loss = loss_by_direction(options)
    if not loss:
        return job
    buckets = []
    for bucket in job.buckets:
        worst = max((loss.get(resource, 0.0) for resource in bucket.price.resources), default=0.0)
        buckets.append(replace(bucket, price=bucket.price._replace(seconds=bucket.price.seconds / (1 - worst))))
    return replace(job, buckets=tuple(buckets))


def tries_of(work: Workload, job: Job, options: EmulationOptions) -> Callable[[int, int], int]:
    """How often each chunk of each message is sent: drawn once, from the seed, whatever the order; k times or more with
    chance loss^(k - 1).
    """
    loss = loss_by_direction(options)
    rate = [loss.get(price.resources[0], 0.0) if price.resources else 0.0 for price in job.prices]

    def tries(message: int, chunk: int) -> int:
        if not rate[message]:
            return 1
        random = Random(f"{options.seed}/{message}/{chunk}")
        return 1 + int(log(1 - random.random()) / log(rate[message]))

    return tries


def loss_by_direction(options: EmulationOptions) -> dict[Resource, float]:
    """The share of chunks that each direction of a lossy link loses."""
    loss: dict[Resource, float] = {}
    for lossy in options.lossy_links:
        first, second = lossy.devices
        loss["link", first, second] = loss["link", second, first] = lossy.loss
    return loss


def _parts(job: Job) -> dict[Operation, int]:
    """An operation has as many parts as the finest of its messages has chunks."""
    parts: dict[Operation, int] = {}
    for message, price in zip(job.lowered.messages, job.prices, strict=True):
        if price.chunks > 1:
            for operation in (message.made_by, message.read_by):
                parts[operation] = max(parts.get(operation, 1), price.chunks)
    return parts


def _depths(work: Workload, job: Job) -> tuple[dict[Resource, int], list[Fault]]:
    """Chunks in front of each direction of a streaming link: FIFO bytes / bytes of its largest chunk, rounded down; at
    least as many as a part of an operation makes. What is sent whole goes from memory, and needs no FIFO.
    """
    depths: dict[Resource, int] = {}
    faults: dict[Resource, Fault] = {}
    kinds = list(work.kinds)
    streamed = [each for each in zip(job.lowered.messages, job.prices, strict=True) if each[1].chunks > 1]
    together = Counter((message.made_by, price.resources[0]) for message, price in streamed)
    for message, price in streamed:
        kind, fifo = work.kinds[work.placed[job.devices[message.source]].kind], price.resources[0]
        if kind.fpga is None or kind.fpga.fifo_bytes is None:
            continue
        chunk_bytes, made = message.size_bytes / price.chunks, together[message.made_by, fifo]
        depths[fifo] = min(depths.get(fifo, 2**62), int(kind.fpga.fifo_bytes // chunk_bytes))
        if depths[fifo] < made and fifo not in faults:
            held = "no chunk" if made == 1 else f"fewer than the {made} chunks at a time"
            detail = (
                f"a FIFO of {kind.fpga.fifo_bytes} bytes holds {held} of {chunk_bytes:.0f} bytes "
                f"from stage {message.made_by.stage}; make it larger, or the link's chunks more"
            )
            pointer = f"/request/cluster/kinds/{kinds.index(kind.name)}/fpga/fifo_bytes"
            faults[fifo] = Fault("fifo_too_small", detail, pointer)
    return depths, list(faults.values())
