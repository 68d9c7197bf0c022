"""Runs that are measured: what a rank does."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.optim import SGD

from bapipe.plan import Plan
from bapipe_executor.measured import Recorder, Recording
from bapipe_executor.trainer import PipelineTrainer
from bapipe_executor.training_loop import train
from harness.training import Network


def measure(network: Network, plan: Plan, steps: int, folder: Path) -> None:
    """Trains in 32 bits, and leaves a record in `folder`."""
    recorder = Recorder(torch.device("cpu"))
    trainer = PipelineTrainer(plan, network.module.tiny(seed=1), network.loss(), SGD, observer=recorder)
    batches = iter(network.module.tiny_data(plan.request.batch_size, seed=2))
    train(trainer, batches, steps, [Recording(recorder, folder)])
