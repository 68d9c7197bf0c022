"""What can be checked on one GPU, in under five minutes: `python -m benchmarks.gpu_check --device cuda --size full`.

Profiles ResNet-50 and GPT-2 layer by layer, plans GPT-2 for four devices, runs the four stages on this one, and sets
the step time and the peak memory beside what was predicted. On a CPU, at tiny size, it shows that all of it runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bapipe.formats import to_json
from bapipe.problem import ModelProfile
from bapipe.quantities import bytes_text, seconds_text
from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.models import gpt2, resnet50
from bapipe_executor.profiling import measured_profile
from bapipe_executor.profiling.device_kinds import kind_of
from benchmarks.one_card import Outcome, on_one_device, planned, run

STAGES, MICROBATCHES = 4, 8
SIZES = {"full": (1, 4), "tiny": (1, 2)}
REPEATS = {"full": 5, "tiny": 2}
SLOWEST = 6


def main() -> None:
    """Prints what was measured, and writes it to the folder."""
    options = _options()
    options.output.mkdir(parents=True, exist_ok=True)
    device, started = torch.device(options.device), time.perf_counter()
    resnet = _profile("resnet50", _make(resnet50, options.size), resnet50, device, options.size)
    _save(options.output, resnet)
    model = gpt2.full(tied=False, dropout=0.0) if options.size == "full" else gpt2.tiny()
    profile = _profile("gpt2", model, gpt2, device, options.size)
    _save(options.output, profile)
    outcome = _pipeline(profile, model, device, options.size)
    (options.output / "outcome.json").write_text(json.dumps(asdict(outcome), indent=2) + "\n", encoding="utf-8")
    print(f"all in {time.perf_counter() - started:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--output", type=Path, default=Path("gpu-check"), help="folder for the profiles and figures")
    return parser.parse_args()


def _make(network: Any, size: str) -> LayeredModel:
    model: LayeredModel = getattr(network, size)()
    return model


def _batches(network: Any, size: str) -> Callable[[int], Batch]:
    return lambda samples: next(iter(getattr(network, f"{size}_data")(samples)))


def _profile(name: str, model: LayeredModel, network: Any, device: torch.device, size: str) -> ModelProfile:
    made = measured_profile(
        model,
        network.loss(),
        _batches(network, size),
        name=name,
        device=device,
        device_kind=kind_of(device),
        microbatch_sizes=SIZES[size],
        repeats=REPEATS[size],
        report=lambda done, total, layer: None,
    )
    samples = SIZES[size][-1]
    print(f"{name} on {kind_of(device)}, micro-batches of {samples}; {made.source}")
    for layer in sorted(made.layers, key=lambda layer: layer.times[-1].backward_s, reverse=True)[:SLOWEST]:
        layer_time = layer.times[-1]
        print(
            f"  {layer.id:<24} forward {seconds_text(layer_time.forward_s):>10}  "
            f"input gradient {seconds_text(layer_time.input_gradient_s or 0.0):>10}  "
            f"weight gradient {seconds_text(layer_time.weight_gradient_s or 0.0):>10}  "
            f"kept {bytes_text((layer.stash_bytes_per_sample or 0.0) * samples)}"
        )
    for warning in made.warnings:
        print(f"  - {warning}")
    return made


def _pipeline(profile: ModelProfile, model: LayeredModel, device: torch.device, size: str) -> Outcome:
    samples = SIZES[size][-1]
    several = planned(profile, kind_of(device), STAGES, MICROBATCHES, samples)
    batches = iter(getattr(gpt2, f"{size}_data")(samples * MICROBATCHES))
    outcome = run(on_one_device(several), model, gpt2.loss(), batches, device)
    print(f"gpt2 in {outcome.stages} stages on one device, {MICROBATCHES} micro-batches of {samples}:")
    ratio = outcome.measured_s / outcome.predicted_s
    times = f"predicted {seconds_text(outcome.predicted_s)}, measured {seconds_text(outcome.measured_s)}"
    print(f"  step time    {times}, ratio {ratio:.3f}")
    measured = "not counted on a CPU"
    if outcome.measured_peak_bytes is not None:
        share = outcome.measured_peak_bytes / outcome.predicted_peak_bytes
        measured = f"measured {bytes_text(outcome.measured_peak_bytes)}, ratio {share:.3f}"
    print(f"  peak memory  predicted {bytes_text(outcome.predicted_peak_bytes)}, {measured}")
    print(f"  losses       {', '.join(f'{loss:.4f}' for loss in outcome.losses)}")
    return outcome


def _save(folder: Path, profile: ModelProfile) -> None:
    (folder / f"{profile.name}.profile.json").write_text(to_json(profile), encoding="utf-8")


if __name__ == "__main__":
    main()
