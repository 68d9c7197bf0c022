"""What a trainer costs beside torch: its steps against those of a script by hand that runs the same schedule.

Both train the same network in the same two processes, a few steps of each in turn, so that whatever else the machine
does meets both. What a trainer adds is the same for every operation, however long that is, so there are two sizes of
them. `make bench-overhead` runs it; exit status 1 when the median of the ratios, turn by turn, is above 1.03.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

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

WIDTH, LAYERS, MICROBATCHES = 256, 6, 8
TURNS = {64: 60, 256: 20}
"""By samples: a backward of a micro-batch takes about 6 ms with 64, 24 ms with 256."""

STEPS_A_TURN = 2
LIMIT = 1.03
RANKS = ((0,), (1,))


def main() -> int:
    """Prints, for each size, the medians of the two, the median of their ratios turn by turn, and that of CPU time."""
    pool = Pool()
    held = [report(samples, pool.run(compare, 2, plan(samples), samples)) for samples in TURNS]
    pool.close()
    return 0 if all(held) else 1


def report(samples: int, answers: list[dict[str, list[Turn]]]) -> bool:
    """Prints what the ranks measured; whether the limit is held."""
    ours, theirs = (answers[0][name] for name in ("trainer", "by hand"))
    ratio = statistics.median(one.wall_s / other.wall_s for one, other in zip(ours, theirs, strict=True))
    cpu_s = {name: sum(turn.cpu_s for answer in answers for turn in answer[name]) for name in ("trainer", "by hand")}
    walls = [statistics.median(turn.wall_s for turn in turns) / STEPS_A_TURN * 1e3 for turns in (ours, theirs)]
    verdict = "" if ratio <= LIMIT else f" EXCEEDS {LIMIT}"
    print(f"{samples} samples: trainer {walls[0]:.2f} ms, by hand {walls[1]:.2f} ms a step; ", end="")
    print(f"ratio of turns {ratio:.3f}{verdict}; CPU time {cpu_s['trainer'] / cpu_s['by hand']:.3f}", flush=True)
    return not verdict


@dataclass(frozen=True)
class Turn:
    """Some steps in a row, on one rank."""

    wall_s: float
    cpu_s: float


def plan(samples: int) -> Plan:
    """Half of the layers on each of two ranks, 1F1B."""
    names = [f"layer{k}" for k in range(LAYERS)]
    stages = [names[: LAYERS // 2], names[LAYERS // 2 :]]
    size = samples // MICROBATCHES
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


def compare(subject: Plan, samples: int) -> dict[str, list[Turn]]:
    """On one rank: the turns of the trainer, and of the script by hand. Who goes first changes from turn to turn."""
    x, target = torch.randn(samples, 32, WIDTH), torch.randn(samples, 32, WIDTH)
    trainer = PipelineTrainer(subject, network(), nn.MSELoss(), lambda p: torch.optim.SGD(p, lr=0.01))
    batch = Batch({"x": x}, target)
    steps: dict[str, Callable[[], object]] = {
        "trainer": lambda: trainer.step(batch),
        "by hand": step_by_hand(x, target),
    }
    turns: dict[str, list[Turn]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for number in range(TURNS[samples]):
        for name in sorted(steps, reverse=number % 2 == 0):
            turns[name].append(timed(steps[name], STEPS_A_TURN))
    return turns


def timed(step: Callable[[], object], steps: int) -> Turn:
    """A turn of so many steps."""
    dist.barrier()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    dist.barrier()
    return Turn(time.perf_counter() - wall_s, time.process_time() - cpu_s)


def step_by_hand(x: Tensor, target: Tensor) -> Callable[[], None]:
    """A step as one would write it with torch alone: a stage a rank, 1F1B, SGD, the loss told to all ranks."""
    rank, half = dist.get_rank(), LAYERS // 2
    model = network()
    module = nn.Sequential(*(copy.deepcopy(model.layer(f"layer{k}")) for k in range(rank * half, (rank + 1) * half)))
    like = torch.empty(len(x) // MICROBATCHES, 32, WIDTH, device="meta")
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
