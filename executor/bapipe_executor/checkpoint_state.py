"""All that a rank needs to go on where it stopped, as flat entries under names that no partition changes.

    model/NAME             a parameter or buffer
    optimizer/NAME         what the optimizer says of a parameter that is no tensor, the values of its group with it
    optimizer/NAME/STATE   what it keeps for the parameter: moments, steps
    lr_scheduler, rng/RANK, progress

NAME is that of the whole network; a tensor that several layers share has the first of its names. What several ranks
hold alike has one name, so a checkpoint has it once, and any other partition finds its own layers in it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from bapipe.errors import Fault
from bapipe_executor.random_numbers import GeneratorStates, generator_states, set_generators
from bapipe_executor.trainer import PipelineTrainer

Entries = dict[str, Any]

NAMES_OF_GROUP = ("params", "param_names")
"""What a group of parameters says of the partition."""


def entries_of(trainer: PipelineTrainer) -> Entries:
    """The entries of this rank, to be written. Its tensors are those in use, no copies; all else is pickled.

    Left to torch, what is no tensor would lose the empty containers in it.
    """
    entries = {
        **_model_entries(trainer),
        **_optimizer_entries(trainer),
        **_scheduler_entries(trainer),
        f"rng/{trainer.rank}": _random_state(trainer.device),
        "progress": {"steps": trainer.steps},
    }
    return {name: entry if isinstance(entry, Tensor) else pickle.dumps(entry) for name, entry in entries.items()}


def entries_to_read(trainer: PipelineTrainer, metadata: Metadata) -> Entries:
    """The entries of a checkpoint that this rank needs, empty; those of the model are its tensors in use."""
    stored = metadata.state_dict_metadata
    wanted, names = _needed(trainer), _optimizer_keys(trainer)
    for key, entry in stored.items():
        if key.rpartition("/")[0] in names and isinstance(entry, TensorStorageMetadata):
            wanted[key] = torch.empty(entry.size, dtype=entry.properties.dtype)
    if f"rng/{trainer.rank}" in stored:
        wanted[f"rng/{trainer.rank}"] = None
    return wanted


def unpickled(entries: Entries) -> Entries:
    """The entries as they were when they were written."""
    return {name: pickle.loads(entry) if isinstance(entry, bytes) else entry for name, entry in entries.items()}


def restore(trainer: PipelineTrainer, entries: Entries) -> None:
    """Puts a rank where the entries say, once they have been read; random numbers where the rank was there before."""
    _restore_optimizer(trainer, entries)
    if trainer.lr_scheduler is not None:
        trainer.lr_scheduler.load_state_dict(entries["lr_scheduler"]["state"])
    trainer.steps = entries["progress"]["steps"]
    if f"rng/{trainer.rank}" in entries:
        _set_random_state(entries[f"rng/{trainer.rank}"], trainer.device)


def checkpoint_faults(trainer: PipelineTrainer, metadata: Metadata) -> Iterator[Fault]:
    """What this rank needs and a checkpoint lacks, or has in another shape."""
    stored = metadata.state_dict_metadata
    for key, value in _needed(trainer).items():
        entry, pointer = stored.get(key), f"/checkpoint/{key}"
        if entry is None:
            yield Fault("missing", f"the checkpoint has no {key}: it is of another network or optimizer", pointer)
        elif isinstance(value, Tensor) and isinstance(entry, TensorStorageMetadata) and entry.size != value.shape:
            detail = f"{key} has the shape {list(entry.size)} there, and {list(value.shape)} in this network"
            yield Fault("wrong_shape", detail, pointer)
    known = {f"model/{name}" for name in trainer.canonical_names.values()}
    others = sorted(key for key in stored if key.startswith("model/") and key not in known)
    if others:
        detail = f"the checkpoint has {len(others)} tensors that this network does not, {others[0]} first"
        yield Fault("dangling_reference", detail, f"/checkpoint/{others[0]}")


def kind_faults(trainer: PipelineTrainer, entries: Entries) -> Iterator[Fault]:
    """Whether the entries are of another kind of optimizer or scheduler, whose values mean something else."""
    written = {entries[key]["kind"] for key in _optimizer_keys(trainer)}
    for stored in sorted(written - {_kind(trainer.optimizer)}):
        detail = (
            f"the optimizer of the checkpoint is {stored}, and of this run {_kind(trainer.optimizer)}; take the same"
        )
        yield Fault("wrong_type", detail, "/checkpoint/optimizer")
    if trainer.lr_scheduler is not None and entries["lr_scheduler"]["kind"] != _kind(trainer.lr_scheduler):
        stored, own = entries["lr_scheduler"]["kind"], _kind(trainer.lr_scheduler)
        detail = f"the scheduler of the checkpoint is {stored}, and of this run {own}; take the same"
        yield Fault("wrong_type", detail, "/checkpoint/lr_scheduler")


def _kind(made: object) -> str:
    return f"{type(made).__module__}.{type(made).__qualname__}"


def _scheduler_entries(trainer: PipelineTrainer) -> Entries:
    scheduler = trainer.lr_scheduler
    if scheduler is None:
        return {}
    return {"lr_scheduler": {"kind": _kind(scheduler), "state": scheduler.state_dict()}}


def _needed(trainer: PipelineTrainer) -> Entries:
    """What a checkpoint must have for this rank."""
    scheduler = {"lr_scheduler": None} if trainer.lr_scheduler is not None else {}
    return {**_model_entries(trainer), **dict.fromkeys(_optimizer_keys(trainer)), **scheduler, "progress": None}


def _optimizer_keys(trainer: PipelineTrainer) -> set[str]:
    return {f"optimizer/{name}" for _, name in _optimized(trainer)}


def _model_entries(trainer: PipelineTrainer) -> Entries:
    names = trainer.canonical_names
    return {f"model/{names.get(name, name)}": tensor for name, tensor in trainer.module.state_dict().items()}


def _optimized(trainer: PipelineTrainer) -> list[tuple[int, str]]:
    """The parameters of the optimizer, group by group: the number of the group, and their names."""
    if trainer.optimizer is None:
        return []
    name_of = {id(p): trainer.canonical_names[name] for name, p in trainer.module.named_parameters()}
    groups = enumerate(trainer.optimizer.param_groups)
    return [(number, name_of[id(parameter)]) for number, group in groups for parameter in group["params"]]


def _optimizer_entries(trainer: PipelineTrainer) -> Entries:
    if trainer.optimizer is None:
        return {}
    whole = trainer.optimizer.state_dict()
    places = [place for group in whole["param_groups"] for place in group["params"]]
    entries: Entries = {}
    for place, (number, name) in zip(places, _optimized(trainer), strict=True):
        group = {k: v for k, v in whole["param_groups"][number].items() if k not in NAMES_OF_GROUP}
        kept = whole["state"].get(place, {})
        values = {key: value for key, value in kept.items() if not isinstance(value, Tensor)}
        entries[f"optimizer/{name}"] = {"kind": _kind(trainer.optimizer), "group": group, "values": values}
        entries |= {f"optimizer/{name}/{key}": value for key, value in kept.items() if isinstance(value, Tensor)}
    return entries


def _restore_optimizer(trainer: PipelineTrainer, entries: Entries) -> None:
    """A group has the values that it had for the first of its parameters."""
    if trainer.optimizer is None:
        return
    whole = trainer.optimizer.state_dict()
    places = [place for group in whole["param_groups"] for place in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for place, (number, name) in reversed(list(zip(places, _optimized(trainer), strict=True))):
        told, start = entries[f"optimizer/{name}"], f"optimizer/{name}/"
        tensors = {
            key.removeprefix(start): entry for key, entry in entries.items() if key.rpartition("/")[0] + "/" == start
        }
        if tensors or told["values"]:
            state[place] = tensors | told["values"]
        whole["param_groups"][number].update(told["group"])
    trainer.optimizer.load_state_dict({**whole, "state": state})


def _random_state(device: torch.device) -> dict[str, Any]:
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return {"cpu": tuple(generator_states()), "cuda": on_device}


def _set_random_state(state: dict[str, Any], device: torch.device) -> None:
    set_generators(GeneratorStates(*state["cpu"]))
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
