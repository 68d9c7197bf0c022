"""What `bapipe emulate --model` does: factories by name in, a trained network and its boards out."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from bapipe.emulation import EmulationOptions
from bapipe.plan import Plan
from bapipe_executor.batch import Batch
from bapipe_executor.fpga.number_format import NumberFormat
from bapipe_executor.fpga.training import VirtualRun, train_on_boards
from bapipe_executor.run_parts import make_batches, make_loss, make_model, optimizer_factory
from bapipe_executor.run_spec import RunSpec


def train(plan: Plan, spec: RunSpec, *, rounding: NumberFormat | None, options: EmulationOptions | None) -> VirtualRun:
    """Trains in 64 bits, so that the order of sums does not show.

    Raises:
        InvalidInputError: a factory, the network or its data cannot be used, or the plan cannot be emulated.
    """
    model = make_model(spec).double()
    batches = _in_64_bits(make_batches(spec, plan.request.batch_size))
    return train_on_boards(
        plan,
        model,
        make_loss(spec),
        batches,
        spec.steps,
        optimizer_factory(spec),
        rounding=rounding,
        options=options,
    )


def _in_64_bits(batches: Iterator[Batch]) -> Iterator[Batch]:
    for batch in batches:
        inputs = {name: _double(tensor) for name, tensor in batch.inputs.items()}
        yield Batch(inputs, _double(batch.target))


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
