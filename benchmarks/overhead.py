"""What a trainer costs beside torch: its steps against those of a script by hand that runs the same schedule.

Both train the same network in the same two processes, a few steps of each in turn, so that whatever else the machine
does meets both. `make bench-overhead` runs it; exit status 1 when the ratio of the medians is above 1.03.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from bapipe.plan import Plan
from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.trainer import PipelineTrainer
from harness.orders import one_stage_a_rank
from harness.plans import make_plan
from harness.pool import Pool

WIDTH, LAYERS, SAMPLES, MICROBATCHES = 384, 8, 64, 8
ROUNDS, STEPS_A_TURN = 12, 4
LIMIT = 1.03
RANKS = ((0,), (1,))


def main() -> int:
    """Prints the medians of the two, and their ratio."""
    pool = Pool()
    by_trainer, by_hand = pool.run(compare, 2, plan())[0]
    pool.close()
    ours_s, theirs_s = statistics.median(by_trainer), statistics.median(by_hand)
    verdict = "" if ours_s / theirs_s <= LIMIT else f" EXCEEDS {LIMIT}"
    print(f"trainer {ours_s * 1e3:.2f} ms, by hand {theirs_s * 1e3:.2f} ms a step: {ours_s / theirs_s:.3f}{verdict}")
    return 1 if verdict else 0


def plan() -> Plan:
    """Half of the layers on each of two ranks, 1F1B."""
    names = [f"layer{k}" for k in range(LAYERS)]
    stages = [names[: LAYERS // 2], names[LAYERS // 2 :]]
    size = SAMPLES // MICROBATCHES
    orders = one_stage_a_rank("1f1b", RANKS, MICROBATCHES)
    return make_plan(network(), stages, RANKS, orders, MICROBATCHES, microbatch_size=size, name="1f1b")


def network() -> LayeredModel:
    """Feed-forward blocks over (samples, 32, width)."""
    torch.manual_seed(0)
    layers = {
        f"layer{k}": nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        for k in range(LAYERS)
    }
    reads = {f"layer{k}": [f"layer{k - 1}" if k else "x"] for k in range(LAYERS)}
    return LayeredModel(layers, reads, ["x"], f"layer{LAYERS - 1}")


def compare(subject: Plan) -> tuple[list[float], list[float]]:
    """On one rank: the seconds of the steps of the trainer, and of those by hand."""
    x, target = torch.randn(SAMPLES, 32, WIDTH), torch.randn(SAMPLES, 32, WIDTH)
    trainer = PipelineTrainer(subject, network(), nn.MSELoss(), lambda p: torch.optim.SGD(p, lr=0.01))
    batch = Batch({"x": x}, target)
    steps: dict[str, Callable[[], object]] = {
        "trainer": lambda: trainer.step(batch),
        "by hand": step_by_hand(x, target),
    }
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(ROUNDS + 1):
        for name, step in steps.items():
            for _ in range(STEPS_A_TURN):
                dist.barrier()
                start_s = time.perf_counter()
                step()
                dist.barrier()
                if turn:
                    taken[name].append(time.perf_counter() - start_s)
    return taken["trainer"], taken["by hand"]


def step_by_hand(x: Tensor, target: Tensor) -> Callable[[], None]:
    """A step as one would write it with torch alone: a stage a rank, 1F1B, SGD, the loss told to all ranks."""
    rank, half = dist.get_rank(), LAYERS // 2
    model = network()
    module = nn.Sequential(*(copy.deepcopy(model.layer(f"layer{k}")) for k in range(rank * half, (rank + 1) * half)))
    like = torch.empty(SAMPLES // MICROBATCHES, 32, WIDTH, device="meta")
    inputs = like if rank == 0 else like.clone().requires_grad_()
    outputs = like.clone().requires_grad_()
    stage = PipelineStage(module, rank, 2, torch.device("cpu"), input_args=inputs, output_args=outputs)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.MSELoss())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

    def step() -> None:
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=target, losses=losses)
        total = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.broadcast(total, src=1)
        total.item()
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    sys.exit(main())
