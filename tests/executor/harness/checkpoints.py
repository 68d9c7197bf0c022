"""Runs with checkpoints: a network that draws random numbers, what a rank does, and what a checkpoint holds."""

from __future__ import annotations

import os
import pickle
import resource
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.optim import Optimizer

from bapipe.errors import CheckpointError, InvalidInputError
from bapipe.plan import Plan
from bapipe_executor import worker
from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.run_spec import RunSpec
from harness.orders import one_stage_a_rank
from harness.plans import cut, make_plan


def noisy() -> LayeredModel:
    """A small network with dropout, batch normalisation and a parameter that two layers share."""
    shared = nn.Linear(6, 6)
    layers = {
        "first": nn.Linear(4, 6),
        "drop": nn.Dropout(0.5),
        "norm": nn.BatchNorm1d(6),
        "middle": shared,
        "again": nn.Sequential(shared),
        "last": nn.Linear(6, 3),
    }
    before = ("x", *layers)
    reads = {name: [read] for name, read in zip(layers, before, strict=False)}
    return LayeredModel(layers, reads, ["x"], "last").double()


def noisy_data(batch_size: int) -> Iterator[Batch]:
    """Batches of random numbers, from whatever generator is there."""
    while True:
        yield Batch({"x": torch.randn(batch_size, 4).double()}, torch.randint(0, 3, (batch_size,)))


def quiet() -> LayeredModel:
    """The same without dropout."""
    model = noisy()
    model.layers["drop"] = nn.Identity()
    return model


def wider() -> LayeredModel:
    """The noisy network with more classes."""
    model = noisy()
    model.layers["last"] = nn.Linear(6, 5).double()
    return model


def scheduler(optimizer: Optimizer) -> Any:
    """A learning rate that falls with every step."""
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def spec_of(folder: Path, steps: int, **changes: Any) -> RunSpec:
    """A run of the noisy network with checkpoints in `folder`."""
    values = {
        "model": "harness.checkpoints:noisy",
        "data": "harness.checkpoints:noisy_data",
        "loss": "bapipe_executor.loss:MaskedCrossEntropy",
        "lr_scheduler": "harness.checkpoints:scheduler",
        "learning_rate": 0.01,
        "checkpoint": str(folder),
    }
    return RunSpec(steps=steps, **(values | changes))


def run_rank(plan: Plan, spec: RunSpec, limit_bytes: int | None = None) -> str:
    """What a worker does; returns its error, if it is one of ours. The last rank can write files of `limit_bytes`."""
    os.environ["LOCAL_RANK"] = str(dist.get_rank())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit_bytes is not None and dist.get_rank() == dist.get_world_size() - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limits[1]))
    try:
        worker.run(plan, spec, torch.device("cpu"), Path(spec.checkpoint or "", "board"))
    except (CheckpointError, InvalidInputError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return ""


def contents(checkpoint: Path) -> dict[str, Any]:
    """Everything in a checkpoint, by its name."""
    reader = FileSystemReader(checkpoint)
    stored = reader.read_metadata().state_dict_metadata
    entries = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        if isinstance(entry, TensorStorageMetadata)
        else None
        for name, entry in stored.items()
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # that is what is meant
        load(
            entries,
            storage_reader=reader,
            planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
            no_dist=True,
        )
    return {name: pickle.loads(entry) if isinstance(entry, bytes) else entry for name, entry in entries.items()}


def noisy_plan() -> Plan:
    """The noisy network on two ranks."""
    model, ranks = noisy(), ((0,), (1,))
    return make_plan(model, cut(model, (1, 1)), ranks, one_stage_a_rank("1f1b", ranks, 8), 8)


def unlike(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The names of what is not the same, to the last bit."""
    return [name for name in one.keys() | other.keys() if not _same(one.get(name), other.get(name))]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return bool(one == other)
