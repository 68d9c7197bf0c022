"""A profile computed from shapes alone, for networks that fit nowhere, or devices that are not at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from bapipe.cost.roofline import Efficiency
from bapipe.problem import DeviceKind, ModelProfile
from bapipe.quantities import percent_text
from bapipe_executor.batch import Batch
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.loss import Loss
from bapipe_executor.profiling.assembly import model_profile
from bapipe_executor.profiling.fakes import fake_tensors, faked_batch
from bapipe_executor.profiling.progress import LayerCounter, Report
from bapipe_executor.profiling.roofline_clock import RooflineClock
from bapipe_executor.profiling.sweep import Sweep
from bapipe_executor.value_specs import outline


def analytic_profile(
    model: LayeredModel,
    loss: Loss | None,
    batch_of: Callable[[int], Batch],
    *,
    name: str,
    device_kind: DeviceKind,
    efficiency: Efficiency,
    microbatch_sizes: Sequence[int],
    report: Report,
    autocast: torch.dtype | None = None,
) -> ModelProfile:
    """Times by the roofline of `device_kind`, bytes by what autograd keeps of tensors without data.

    The model may be on the meta device. Only the batches that `batch_of` makes take memory.

    Raises:
        InvalidInputError: the kind lacks a figure that the model's operations need.
    """
    batches = {size: batch_of(size) for size in microbatch_sizes}
    clock = RooflineClock(device_kind, efficiency)
    counter = LayerCounter(report, len(batches) * len(model.names))
    with fake_tensors():
        fake_model = outline(model, "cpu")
        fake_loss = outline(loss, "cpu") if isinstance(loss, nn.Module) else loss
        observed = {
            size: Sweep(fake_model, fake_loss, faked_batch(batch), clock, autocast).observe(counter)
            for size, batch in batches.items()
        }
    shares = f"{percent_text(efficiency.compute)} of peak FLOP/s, {percent_text(efficiency.memory)} of memory bandwidth"
    mixed = f", {str(autocast).removeprefix('torch.')} autocast" if autocast else ""
    source = f"Computed: roofline of {device_kind.name} at {shares}{mixed}, torch {torch.__version__}."
    return model_profile(
        name, model, observed, device_kind.name, source, ["times are computed by a roofline, not measured"]
    )
