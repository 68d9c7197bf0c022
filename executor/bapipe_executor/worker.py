"""One rank of `bapipe run`, as torchrun starts it: `python -m bapipe_executor.worker FOLDER`.

The folder has the plan and what is run. Rank 0 reports every step; a rank that fails says why.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from bapipe.errors import InvalidInputError
from bapipe.faults import parse, parse_json
from bapipe.plan import Plan
from bapipe_executor import run_parts
from bapipe_executor.events import emit
from bapipe_executor.run_spec import RunSpec
from bapipe_executor.trainer import PipelineTrainer
from bapipe_executor.training_loop import Hook, StepReport, train

PLAN_FILE, SPEC_FILE = "plan.json", "run.json"


class Reports(Hook):
    """Tells of every step, from rank 0."""

    def after_step(self, trainer: PipelineTrainer, report: StepReport) -> None:
        if trainer.rank == 0:
            emit("step", step=report.step, loss=report.loss, step_s=report.step_s, samples_per_s=report.samples_per_s)


def main(folder: str) -> int:
    """Joins the other ranks, trains, and leaves. Returns the exit code."""
    rank = int(os.environ["RANK"])
    try:
        plan = parse(Plan, parse_json(Path(folder, PLAN_FILE).read_bytes()))
        spec = parse(RunSpec, parse_json(Path(folder, SPEC_FILE).read_bytes()))
        device = join(spec)
        run(plan, spec, device)
    except Exception as error:
        emit("failed", rank=rank, error=type(error).__name__, message=str(error))
        if isinstance(error, InvalidInputError):
            return 1  # without leaving the group, which might wait for ranks that wait for this one
        raise
    dist.destroy_process_group()
    return 0


def join(spec: RunSpec) -> torch.device:
    """Joins the process group: NCCL between CUDA devices, gloo between CPUs. Returns the device of this rank."""
    timeout = timedelta(seconds=spec.timeout_s)
    if spec.device == "cpu":
        dist.init_process_group("gloo", timeout=timeout)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=timeout, device_id=device)
    return device


def run(plan: Plan, spec: RunSpec, device: torch.device) -> None:
    """Makes the trainer of this rank and takes its steps."""
    trainer = PipelineTrainer(
        plan,
        run_parts.make_model(spec),
        run_parts.make_loss(spec),
        run_parts.optimizer_factory(spec),
        lr_scheduler=run_parts.scheduler_factory(spec),
        max_gradient_norm=spec.max_gradient_norm,
        autocast=run_parts.autocast_type(spec),
        device=device,
    )
    torch.manual_seed(spec.seed + 1 + trainer.rank)  # dropout differs from rank to rank
    train(trainer, run_parts.make_batches(spec, plan.request.batch_size), spec.steps, [Reports()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
