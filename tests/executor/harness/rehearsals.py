"""Plans rehearsed: what a rank does."""

from __future__ import annotations

import time
from pathlib import Path

import torch.distributed as dist
from torch.optim import SGD

from bapipe.plan import Plan
from bapipe_executor import rehearsal
from bapipe_executor.trainer import PipelineTrainer


def step_times(plan: Plan, steps: int, board: Path) -> list[float]:
    """Seconds of so many steps, after one that does not count."""
    cluster = rehearsal.EmulatedCluster(plan, dist.get_rank(), board)
    trainer = PipelineTrainer(plan, rehearsal.network(plan), rehearsal.loss(), SGD, observer=cluster)
    batch = next(rehearsal.batches(plan))
    seconds = []
    for _ in range(steps + 1):
        start_s = time.perf_counter()
        trainer.step(batch)
        seconds.append(time.perf_counter() - start_s)
    return seconds[1:]
