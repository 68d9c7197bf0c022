"""The emulator, timing only: ResNet-50 in equal layers on 8 boards × 64 micro-batches, and on 64 × 1,024."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bapipe.emulation.emulate import emulate
from bapipe.examples import load_example
from bapipe.plan import NOT_PREDICTED, Plan, Schedule, Stage, unproven
from bapipe.precision import at_precision
from bapipe.presets.boards import board_cluster
from bapipe.problem import PlanRequest
from bapipe.schedules import placed_orders
from benchmarks.measurement import Measurement, measure

SIZES = ((8, 64, 5.0), (64, 1024, 60.0))
"""Boards, micro-batches, and the seconds that a step may take to emulate."""


def measurements() -> Iterator[Measurement]:
    """Both sizes."""
    for boards, microbatches, limit_s in SIZES:
        plan = equal_layers(boards, microbatches)
        name = f"emulate ResNet-50, {boards} boards × {microbatches} micro-batches"
        yield measure(name, partial(emulate, plan), limit_s=limit_s, repeats=1)


def equal_layers(boards: int, microbatches: int) -> Plan:
    """1F1B-AS on VCU118 boards, of samples one by one."""
    profile, cluster = at_precision(load_example("resnet50"), "fp16"), board_cluster("VCU118", boards)
    request = PlanRequest(profile=profile, cluster=cluster, batch_size=microbatches, dtype="fp16")
    names, devices = [layer.id for layer in profile.layers], [device.id for device in cluster.devices]
    ends = [round(len(names) * number / boards) for number in range(boards + 1)]
    stages = tuple(
        Stage(
            index=number,
            layers=tuple(names[ends[number] : ends[number + 1]]),
            devices=(device,),
            forward_s=0.0,
            backward_s=0.0,
            load_s=0.0,
            peak_memory_bytes=0.0,
            memory_limit_bytes=None,
        )
        for number, device in enumerate(devices)
    )
    orders = placed_orders("1f1b", [(device,) for device in devices], devices, microbatches, training=True)
    schedule = Schedule(name="1f1b", num_microbatches=microbatches, microbatch_size=1, orders=orders)
    return Plan(
        status="feasible",
        request=request,
        stages=stages,
        schedule=schedule,
        prediction=NOT_PREDICTED,
        proof=unproven("equal layers"),
    )
