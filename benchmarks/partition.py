"""What a partition of the planner's is worth on real CPUs: a small GPT-2 in two processes of one thread each.

Its head is as large beside its blocks as that of the published GPT-2, so as many layers on each rank are uneven work.
The profile is measured first; then the plan and the one of equal layers, each with the schedule that is best for it,
train the same network on the same batches, a step of each in turn. `make bench-partition` runs it; exit status 1
unless both learn the same.
"""

from __future__ import annotations

import copy
import statistics
import sys
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.problem import Cluster, Device, DeviceKind, Link, Links, ModelProfile, Pin, PlanRequest
from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.models.gpt2 import gpt2, loss
from bapipe_executor.models.synthetic import SyntheticData, next_tokens
from bapipe_executor.profiling import measured_profile
from bapipe_executor.trainer import PipelineTrainer
from benchmarks.overhead import timed
from harness.pool import Pool

BLOCKS, WIDTH, HEADS, VOCABULARY, TOKENS = 12, 128, 4, 8_192, 32
SAMPLES, MICROBATCHES = 16, 8
STEPS = 50
RANKS = 2
SCHEDULES = ("gpipe", "1f1b", "1f1b-so")
CPU = "one thread"
LINK = Link(bandwidth_bytes_per_s=1e9, latency_s=1e-4)
"""Of gloo over the loopback, roughly; a transfer of 32 kB counts for little beside operations of milliseconds."""

SAME = 1e-4
"""By how much losses in 32 bits may differ: sums are taken in another order."""


def main() -> int:
    """Prints both partitions, with their predicted and measured steps, and the two ratios."""
    torch.set_num_threads(1)
    profile = measured()
    plans = {"planned": planned(profile), "equal layers": planned(equal(profile))}
    pool = Pool()
    runs = pool.run(train, RANKS, plans)[0]
    pool.close()
    seconds = {name: statistics.median(run.step_s) for name, run in runs.items()}
    for name, made in plans.items():
        assert made.schedule is not None
        cut = " + ".join(str(len(stage.layers)) for stage in made.stages)
        told = f"predicted {predicted_s(made) * 1e3:.1f} ms, measured {seconds[name] * 1e3:.1f} ms a step"
        print(f"{name:<13} {cut:>8} layers, {made.schedule.name:<8} {told}, median of {STEPS}")
    ratios = [b / a for a, b in zip(runs["planned"].step_s, runs["equal layers"].step_s, strict=True)]
    predicted = predicted_s(plans["equal layers"]) / predicted_s(plans["planned"])
    print(f"equal layers / planned: predicted {predicted:.3f}, measured {statistics.median(ratios):.3f} turn by turn")
    apart = max(abs(a - b) for a, b in zip(runs["planned"].losses, runs["equal layers"].losses, strict=True))
    print(f"largest difference of their losses {apart:.1e}")
    return 0 if apart < SAME else 1


def network() -> LayeredModel:
    """A new one, the same in every process."""
    torch.manual_seed(0)
    return gpt2(BLOCKS, WIDTH, HEADS, VOCABULARY, TOKENS, tied=False, dropout=0.0)


def data(samples: int) -> SyntheticData:
    """Endless batches."""
    return next_tokens(samples, VOCABULARY, TOKENS, 0)


def measured() -> ModelProfile:
    """What the layers take in this process, which has one thread."""
    return measured_profile(
        network(),
        loss(),
        lambda size: data(size).batch(0),
        name="gpt2, small",
        device=torch.device("cpu"),
        device_kind=CPU,
        microbatch_sizes=(SAMPLES // MICROBATCHES,),
        repeats=10,
        report=lambda *_: None,
    )


def equal(profile: ModelProfile) -> ModelProfile:
    """The profile, its layers pinned: as many to each device."""
    names = [layer.id for layer in profile.layers]
    size = -(-len(names) // RANKS)
    pins = tuple(Pin(layer=name, device=f"cpu{number // size}") for number, name in enumerate(names))
    return profile.model_copy(update={"pins": pins})


def planned(profile: ModelProfile) -> Plan:
    """The best plan on two processes."""
    devices = tuple(Device(id=f"cpu{rank}", kind=CPU) for rank in range(RANKS))
    cluster = Cluster(kinds=(DeviceKind(name=CPU),), devices=devices, links=Links(within_host=LINK))
    request = PlanRequest(
        profile=profile,
        cluster=cluster,
        batch_size=SAMPLES,
        microbatch_counts=(MICROBATCHES,),
        max_replication=1,
        idle_devices=False,
        schedules=SCHEDULES,
    )
    return plan(request)


def predicted_s(made: Plan) -> float:
    """Seconds of a step, as the plan says."""
    assert made.prediction is not None
    return made.prediction.step_time_s


@dataclass(frozen=True)
class Run:
    """Seconds and loss of each step, the first, in which memory is allocated, left out of the seconds."""

    step_s: list[float]
    losses: list[float]


def train(plans: dict[str, Plan]) -> dict[str, Run]:
    """On one rank: a step of each plan in turn. Who goes first changes from turn to turn."""
    torch.set_num_threads(1)
    model = network()
    trainers = {
        name: PipelineTrainer(made, copy.deepcopy(model), loss(), lambda p: torch.optim.SGD(p, lr=0.1))
        for name, made in plans.items()
    }
    runs = {name: Run([], []) for name in plans}
    batches = iter(data(SAMPLES))
    for number in range(STEPS + 1):
        batch = next(batches)
        for name in sorted(trainers, reverse=number % 2 == 0):
            step_s = timed(partial(_step, trainers[name], batch, runs[name]), 1).wall_s
            if number:
                runs[name].step_s.append(step_s)
    dist.barrier()
    return runs


def _step(trainer: PipelineTrainer, batch: Batch, run: Run) -> None:
    run.losses.append(trainer.step(batch))


if __name__ == "__main__":
    sys.exit(main())
