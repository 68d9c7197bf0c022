"""Trains a tiny GPT-2 as a plan says. Start one process for each device that the plan uses:

torchrun --standalone --nproc-per-node 2 examples/train.py plan.json
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from bapipe.formats import load_plan
from bapipe_executor import PipelineTrainer
from bapipe_executor.models import gpt2

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
plan = load_plan(sys.argv[1])
trainer = PipelineTrainer(
    plan,
    gpt2.tiny(),
    gpt2.loss(),
    optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    max_gradient_norm=1.0,
)
for batch in gpt2.tiny_data(plan.request.batch_size):
    loss = trainer.step(batch)
    if dist.get_rank() == 0:
        print(f"step {trainer.steps}: loss {loss:.4f}")
    if trainer.steps == 5:
        break
dist.destroy_process_group()
