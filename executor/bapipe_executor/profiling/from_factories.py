"""What `bapipe profile` does: factories by name in, a profile out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from bapipe.errors import Fault, InvalidInputError
from bapipe.examples.kernels import EFFICIENCY
from bapipe.nearest import nearest
from bapipe.presets import ALIASES, device_kinds
from bapipe.problem import DeviceKind, ModelProfile
from bapipe_executor.batch import Batch
from bapipe_executor.factories import load_factory, make, sibling
from bapipe_executor.fpga.operators import with_operators
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import Loss
from bapipe_executor.networks import default_data, layered_network
from bapipe_executor.profiling.analytic import analytic_profile
from bapipe_executor.profiling.device_kinds import kind_of
from bapipe_executor.profiling.measured import measured_profile
from bapipe_executor.profiling.progress import Report


@dataclass(frozen=True)
class Subject:
    """What is profiled, by the names of its factories. `data` None: the model's name with `_data`; `loss` None: `loss`
    beside the model, if there is one. `autocast`: mixed precision of this type, as the network is trained.
    """

    model: str
    data: str | None = None
    loss: str | None = None
    name: str | None = None
    autocast: Literal["bf16"] | None = None


class Parts(NamedTuple):
    """The network, its loss, and where micro-batches of a size come from."""

    model: LayeredModel
    loss: Loss | None
    batch_of: Callable[[int], Batch]


def measure(
    subject: Subject,
    *,
    device: str,
    device_kind: str | None,
    microbatch_sizes: tuple[int, ...],
    repeats: int,
    report: Report,
) -> ModelProfile:
    """A profile measured here. `device_kind` None: the kind that the device is known by.

    Raises:
        InvalidInputError: a factory, the device, or the model cannot be used.
    """
    if device == "cuda" and not torch.cuda.is_available():
        detail = "torch sees no CUDA device here; take --device cpu, or --analytic KIND for a device that is elsewhere"
        raise InvalidInputError([Fault("no_device", detail, "/device")])
    place = torch.device(device)
    parts = _parts(subject, described=False)
    profile = measured_profile(
        *parts,
        name=_name(subject),
        device=place,
        device_kind=device_kind or kind_of(place),
        microbatch_sizes=microbatch_sizes,
        repeats=repeats,
        report=report,
        autocast=_autocast(subject),
    )
    return with_operators(profile, parts.model, parts.batch_of(1).inputs)


def compute(subject: Subject, *, kind: str, microbatch_sizes: tuple[int, ...], report: Report) -> ModelProfile:
    """A profile computed for a device kind among the presets, without the device, and without the model's parameters.

    Raises:
        InvalidInputError: there is no such kind, or a factory or the model cannot be used.
    """
    parts = _parts(subject, described=True)
    profile = analytic_profile(
        *parts,
        name=_name(subject),
        device_kind=_preset(kind),
        efficiency=EFFICIENCY,
        microbatch_sizes=microbatch_sizes,
        report=report,
        autocast=_autocast(subject),
    )
    return with_operators(profile, parts.model, parts.batch_of(1).inputs)


def _parts(subject: Subject, *, described: bool) -> Parts:
    load_factory(subject.model, "/model")
    data = subject.data or default_data(subject.model)
    loss = subject.loss or sibling(subject.model, "loss")
    with torch.device("meta") if described else nullcontext():
        model = make(subject.model, "/model")
    batch_of = _batches(data)
    return Parts(layered_network(model, batch_of, subject.model), make(loss, "/loss") if loss else None, batch_of)


def _batches(data: str) -> Callable[[int], Batch]:
    def batch_of(size: int) -> Batch:
        batch = next(iter(make(data, "/data", size)), None)
        if isinstance(batch, Batch) and batch.size == size:
            return batch
        what = f"{batch.size} samples" if isinstance(batch, Batch) else type(batch).__name__
        detail = f"the first batch of {data}({size}) is {what}; it is to be a Batch of {size} samples"
        raise InvalidInputError([Fault("wrong_batch", detail, "/data")])

    return batch_of


def _preset(name: str) -> DeviceKind:
    kinds = device_kinds()
    kind = kinds.get(ALIASES.get(name, name))
    if kind is None:
        near = nearest(name, kinds)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(sorted(kinds))}"
        raise InvalidInputError(
            [Fault("unknown_device_kind", f"there is no device kind {name!r}; {hint}", "/analytic")]
        )
    return kind


def _autocast(subject: Subject) -> torch.dtype | None:
    return torch.bfloat16 if subject.autocast == "bf16" else None


def _name(subject: Subject) -> str:
    return subject.name or subject.model.rpartition(".")[2].replace(":", "-")
