"""The simulator on a long step: 8 stages by 4,096 micro-batches over overlapped links, memory counted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bapipe.cost.pipeline import pipeline_cost
from bapipe.plan import NOT_PREDICTED, Plan, Schedule, Stage, unproven
from bapipe.problem import (
    Cluster,
    Device,
    DeviceKind,
    Layer,
    LayerTime,
    Link,
    Links,
    ModelProfile,
    PlanRequest,
    ScheduleName,
)
from bapipe.schedules import operations, orders
from bapipe.simulator import simulate
from bapipe.simulator.replay import replay
from benchmarks.measurement import Measurement, measure

NUM_STAGES = 8
NUM_MICROBATCHES = 4096
LIMIT_S = 0.3


def measurements() -> Iterator[Measurement]:
    """The whole simulation of a plan under each schedule, and its parts under 1F1B."""
    names: tuple[ScheduleName, ...] = ("1f1b", "1f1b-so", "gpipe")
    for name in names:
        plan = _plan(name)
        limit_s = LIMIT_S if name == "1f1b" else None
        yield measure(f"simulate {name}, 8 stages x 4,096 micro-batches", partial(simulate, plan), limit_s)
    plan = _plan("1f1b")
    stages, devices = [stage.layers for stage in plan.stages], [stage.devices for stage in plan.stages]
    cost = pipeline_cost(plan.request, stages, devices, 1)
    known = operations("1f1b", NUM_STAGES, NUM_MICROBATCHES)
    yield measure("replay 1f1b, times only", partial(replay, cost, known, NUM_MICROBATCHES))
    yield measure("orders of 1f1b as strings", partial(orders, "1f1b", NUM_STAGES, NUM_MICROBATCHES))


def _plan(name: ScheduleName) -> Plan:
    layers = tuple(
        Layer(
            id=f"block{s}",
            times=(LayerTime(device_kind="reference", microbatch_size=1, forward_s=0.010 + s / 1e4, backward_s=0.021),),
            parameter_bytes=400_000_000,
            output_bytes_per_sample=4e6,
            stash_bytes_per_sample=2e7,
        )
        for s in range(NUM_STAGES)
    )
    kind = DeviceKind(name="reference", memory_bytes=200 * 10**9, memory_bandwidth_bytes_per_s=9e11)
    cluster = Cluster(
        kinds=(kind,),
        devices=tuple(Device(id=f"gpu{s}", kind=kind.name) for s in range(NUM_STAGES)),
        links=Links(within_host=Link(bandwidth_bytes_per_s=1e10, latency_s=1e-5)),
    )
    profile = ModelProfile(name="eight blocks", layers=layers)
    return Plan(
        status="feasible",
        request=PlanRequest(profile=profile, cluster=cluster, batch_size=NUM_MICROBATCHES),
        stages=tuple(_stage(s) for s in range(NUM_STAGES)),
        schedule=Schedule(
            name=name,
            num_microbatches=NUM_MICROBATCHES,
            microbatch_size=1,
            orders=orders(name, NUM_STAGES, NUM_MICROBATCHES),
        ),
        prediction=NOT_PREDICTED,
        proof=unproven(""),
    )


def _stage(index: int) -> Stage:
    """A stage by what the simulator reads of it; its declared figures are not read."""
    return Stage(
        index=index,
        layers=(f"block{index}",),
        devices=(f"gpu{index}",),
        forward_s=0.0,
        backward_s=0.0,
        load_s=0.0,
        peak_memory_bytes=0.0,
        memory_limit_bytes=None,
    )
