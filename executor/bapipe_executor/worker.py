"""One rank of `bapipe run`, as torchrun starts it: `python -m bapipe_executor.worker FOLDER`.

The folder has the plan and what is run. Rank 0 reports every step; a rank that fails says why.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist

from bapipe.errors import DivergedError
from bapipe.faults import parse, parse_json
from bapipe.plan import Plan
from bapipe_executor import rehearsal, run_parts
from bapipe_executor.batch import Batch
from bapipe_executor.checkpoint import Checkpoints, Saving
from bapipe_executor.data_stream import alike
from bapipe_executor.events import emit
from bapipe_executor.failures import print_defect, told
from bapipe_executor.lifeline import end_with_parent
from bapipe_executor.measured import Recorder, Recording
from bapipe_executor.observer import Observer
from bapipe_executor.random_numbers import seed_generators
from bapipe_executor.run_spec import RunSpec
from bapipe_executor.trainer import PipelineTrainer
from bapipe_executor.training_loop import Hook, StepReport, train
from bapipe_executor.watch import START_LIMIT_S

PLAN_FILE, SPEC_FILE, BOARD_FILE = "plan.json", "run.json", "board"


class Reports(Hook):
    """Tells of every step from rank 0, and from the first rank of every other host that it goes on."""

    def after_step(self, trainer: PipelineTrainer, report: StepReport) -> None:
        if trainer.rank == 0:
            emit("step", step=report.step, loss=report.loss, step_s=report.step_s, samples_per_s=report.samples_per_s)
        elif first_of_host():
            emit("alive", step=report.step)


class FiniteLoss(Hook):
    """Ends a run whose loss is no number, before its weights are saved. All ranks have the same loss."""

    def after_step(self, trainer: PipelineTrainer, report: StepReport) -> None:
        if not math.isfinite(report.loss):
            raise DivergedError(
                f"the loss of step {report.step} is {report.loss}, and the weights are of no more use; look at the "
                "mini-batch of that step, or train with a lower --learning-rate or with --clip"
            )


def main(folder: str) -> int:
    """Joins the other ranks, trains, and leaves. Returns the exit code."""
    end_with_parent(signal.SIGKILL)
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)  # it prints schedules that fail
    rank = int(os.environ["RANK"])
    emit("started", rank=rank, pid=os.getpid())
    try:
        plan = parse(Plan, parse_json(Path(folder, PLAN_FILE).read_bytes()))
        spec = parse(RunSpec, parse_json(Path(folder, SPEC_FILE).read_bytes()))
        device = join(spec)
        run(plan, spec, device, Path(folder, BOARD_FILE))
    except Exception as error:
        emit("failed", rank=rank, **told(error))
        print_defect(error)
        return 1  # without leaving the group, which might wait for ranks that wait for this one
    dist.destroy_process_group()
    return 0


def join(spec: RunSpec) -> torch.device:
    """Joins the process group: NCCL between CUDA devices, gloo between CPUs. Returns the device of this rank.

    Its timeout leaves ranks the time to start; whoever watches the run notices earlier that a step takes too long.
    """
    timeout = timedelta(seconds=max(spec.timeout_s, START_LIMIT_S))
    if spec.device == "cpu":
        dist.init_process_group("gloo", timeout=timeout)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timeout, device_id=device)
    return device


def run(plan: Plan, spec: RunSpec, device: torch.device, board: Path) -> None:
    """Makes the trainer of this rank and takes its steps. `board` is a file that the ranks of a host may share."""
    observer: Observer | None = (
        rehearsal.EmulatedCluster(plan, dist.get_rank(), board) if spec.emulate_compute else None
    )
    recorder = Recorder(device, observer) if spec.report is not None else None
    trainer = make_trainer(plan, spec, device, recorder or observer)
    torch.manual_seed(spec.seed + 1 + trainer.rank)  # dropout differs from rank to rank
    seed_generators(spec.seed + 1 + trainer.rank)
    batches = make_batches(plan, spec)
    hooks: list[Hook] = [Reports(), FiniteLoss()]
    if spec.checkpoint is not None:
        checkpoints = Checkpoints(Path(spec.checkpoint))
        saved = checkpoints.resume(trainer) if spec.resume else None
        batches = islice(batches, trainer.steps, None)
        hooks.append(Saving(checkpoints, spec.checkpoint_every, lambda step: emit("checkpoint", step=step), saved))
    if recorder is not None and spec.report is not None:
        hooks.append(Recording(recorder, Path(spec.report)))
    if first_of_host():
        emit("ready", step=trainer.steps)
    train(trainer, alike(batches), spec.steps, hooks)


def make_batches(plan: Plan, spec: RunSpec) -> Iterator[Batch]:
    """The mini-batches, from the first."""
    if spec.emulate_compute:
        return rehearsal.batches(plan)
    return run_parts.make_batches(spec, plan.request.batch_size)


def make_trainer(plan: Plan, spec: RunSpec, device: torch.device, observer: Observer | None) -> PipelineTrainer:
    """The trainer of this rank."""
    if spec.emulate_compute:
        return PipelineTrainer(
            plan, rehearsal.network(plan), rehearsal.loss(), torch.optim.SGD, device=device, observer=observer
        )
    return PipelineTrainer(
        plan,
        run_parts.make_model(spec),
        run_parts.make_loss(spec),
        run_parts.optimizer_factory(spec),
        lr_scheduler=run_parts.scheduler_factory(spec),
        max_gradient_norm=spec.max_gradient_norm,
        autocast=run_parts.autocast_type(spec),
        device=device,
        observer=observer,
    )


def first_of_host() -> bool:
    """Whether this is the first rank of its host."""
    return os.environ["LOCAL_RANK"] == "0"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
