"""A plan of several stages, run by one rank that holds all of them: what one GPU can check of a pipeline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist

from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.problem import Cluster, Device, DeviceKind, ModelProfile, PlanRequest
from bapipe.simulator import simulate
from bapipe_executor import LayeredModel
from bapipe_executor.batch import Batch
from bapipe_executor.loss import Loss
from bapipe_executor.trainer import PipelineTrainer

STEPS = 3


@dataclass(frozen=True)
class Outcome:
    """Predicted and measured figures of a step; `measured_peak_bytes` None: only a GPU counts its memory."""

    stages: int
    predicted_s: float
    measured_s: float
    predicted_peak_bytes: float
    measured_peak_bytes: int | None
    losses: tuple[float, ...]


def planned(profile: ModelProfile, kind: str, stages: int, microbatches: int, microbatch_size: int) -> Plan:
    """The best 1F1B of at most so many stages, on devices with free links between them."""
    request = PlanRequest(
        profile=profile,
        cluster=_cluster(kind, stages),
        batch_size=microbatches * microbatch_size,
        microbatch_sizes=(microbatch_size,),
        schedules=("1f1b",),
        max_stages=stages,
        time_limit_s=20.0,
    )
    return plan(request)


def on_one_device(several: Plan) -> Plan:
    """The same stages on a single device, which executes their operations in the order in which they started."""
    operations = simulate(several).operations
    columns = zip(operations.start_s, operations.stage, operations.kind, operations.microbatch, strict=True)
    order = [f"{stage}{kind}{microbatch}" for _, stage, kind, microbatch in sorted(columns, key=_start)]
    cluster = _cluster(several.request.cluster.kinds[0].name, 1)
    assert several.schedule is not None
    return several.model_copy(
        update={
            "request": several.request.model_copy(update={"cluster": cluster, "schedules": None, "max_stages": None}),
            "stages": tuple(stage.model_copy(update={"devices": (cluster.devices[0].id,)}) for stage in several.stages),
            "schedule": several.schedule.model_copy(update={"name": "custom", "orders": (tuple(order),)}),
        }
    )


def run(one: Plan, model: LayeredModel, loss: Loss, batches: Iterator[Batch], device: torch.device) -> Outcome:
    """Trains a few steps with Adam; the first is not timed."""
    prediction = simulate(one)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=torch._C._distributed_c10d.HashStore(), rank=0, world_size=1)
    try:
        trainer = PipelineTrainer(one, model, loss, lambda named: torch.optim.Adam(named, fused=True), device=device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        seconds, losses = zip(*(_step(trainer, batch, device) for batch in islice(batches, STEPS + 1)), strict=True)
    finally:
        dist.destroy_process_group()
    return Outcome(
        stages=len(one.stages),
        predicted_s=prediction.step_time_s,
        measured_s=min(seconds[1:]),
        predicted_peak_bytes=prediction.peak_memory_bytes[0],
        measured_peak_bytes=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        losses=losses,
    )


def _step(trainer: PipelineTrainer, batch: Batch, device: torch.device) -> tuple[float, float]:
    started = time.perf_counter()
    loss = trainer.step(batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started, loss


def _cluster(kind: str, devices: int) -> Cluster:
    return Cluster(
        kinds=(DeviceKind(name=kind),),
        devices=tuple(Device(id=f"device{number}", kind=kind) for number in range(devices)),
        receive_buffers="all",
    )


def _start(columns: tuple[float, int, str, int]) -> tuple[float, int]:
    """By start, and what started at the same instant as data flows: forwards down the stages, backwards up."""
    start_s, stage, kind, _ = columns
    return start_s, stage if kind == "F" else -stage
