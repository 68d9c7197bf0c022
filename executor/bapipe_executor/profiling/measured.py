"""A profile measured on the device that trains."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

import torch
from torch import nn

from bapipe.problem import ModelProfile
from bapipe.quantities import percent_text, seconds_text
from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import Loss
from bapipe_executor.profiling.assembly import model_profile
from bapipe_executor.profiling.clocks import Clock, CpuClock, CudaClock
from bapipe_executor.profiling.progress import LayerCounter, Report
from bapipe_executor.profiling.sweep import LayerObservation, Sweep

ROUNDS = 3
"""Passes over the network, apart in time: what is slow once by chance is seen again."""

LAUNCHES = 20

BUSY = 0.1
"""Where the two best rounds differ by more, the machine did something else, too."""


def measured_profile(
    model: LayeredModel,
    loss: Loss | None,
    batch_of: Callable[[int], Batch],
    *,
    name: str,
    device: torch.device,
    device_kind: str,
    microbatch_sizes: Sequence[int],
    repeats: int,
    report: Report,
    autocast: torch.dtype | None = None,
) -> ModelProfile:
    """Times and bytes of every layer on `device`, named `device_kind`, with micro-batches that `batch_of` makes.

    The least of `repeats` measurements in each round. The model is moved to the device, and is otherwise as
    before. The loss is measured with the layer whose output it reads.
    """
    model.to(device)
    if isinstance(loss, nn.Module):
        loss.to(device)
    clock = CudaClock(repeats, device) if device.type == "cuda" else CpuClock(repeats)
    batches = {size: batch_of(size).to(device) for size in microbatch_sizes}
    counter = LayerCounter(report, ROUNDS * len(batches) * len(model.names))
    rounds = [
        {size: Sweep(model, loss, batch, clock, autocast).observe(counter) for size, batch in batches.items()}
        for _ in range(ROUNDS)
    ]
    observed = {
        size: {name: reduce(LayerObservation.least, (seen[size][name] for seen in rounds)) for name in model.names}
        for size in batches
    }
    return model_profile(
        name,
        model,
        observed,
        device_kind,
        _source(device, clock, autocast),
        [*_repeatability(rounds), *_launches(clock)],
    )


def _source(device: torch.device, clock: Clock, autocast: torch.dtype | None) -> str:
    what = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    what += f", {str(autocast).removeprefix('torch.')} autocast" if autocast else ""
    runs = f"least of {ROUNDS} × {clock.repeats} runs a layer"
    launch = f"an operation on one number takes {seconds_text(_launch_s(device, clock))}"
    return f"Measured: {what}, torch {torch.__version__}, {runs}; {launch}."


def _launch_s(device: torch.device, clock: Clock) -> float:
    """What is left of an operation that has nothing to do: its launch."""
    number = torch.zeros(1, device=device)
    return min(clock.time(lambda: number.add_(1))[0] for _ in range(LAUNCHES))


def _repeatability(rounds: Sequence[Mapping[int, Mapping[str, LayerObservation]]]) -> Iterator[str]:
    """How far the sums of the two best rounds lie apart at each size, and the median spread of the layers."""
    busy = False
    for size in rounds[0]:
        least, second = sorted(sum(map(_total_s, seen[size].values())) for seen in rounds)[:2]
        spread = statistics.median(each.seconds.spread for seen in rounds for each in seen[size].values())
        busy = busy or second > (1 + BUSY) * least
        yield (
            f"at micro-batches of {size} the layers take {seconds_text(least)} in all; the two best of {ROUNDS} rounds "
            f"differ by {percent_text(second / least - 1)}, the median of a layer's runs exceeds the least by "
            f"{percent_text(spread)}"
        )
    if busy:
        yield "the machine was busy with something else: measure again, on the CPU with one thread (OMP_NUM_THREADS=1)"


def _total_s(seen: LayerObservation) -> float:
    return seen.seconds.forward_s + seen.seconds.backward_s


def _launches(clock: Clock) -> list[str]:
    if not isinstance(clock, CudaClock) or not clock.launch_bound:
        return []
    share = percent_text(clock.launch_bound / clock.timed)
    return [f"launching took longer than computing in {share} of the runs; their times are the host's"]
