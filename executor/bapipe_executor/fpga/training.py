"""Steps of training on virtual boards: operations in the order in which they end, then all-reduce and update."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bapipe.emulation import EmulationOptions, EmulationReport
from bapipe.emulation.emulate import Emulated, emulate
from bapipe.errors import Fault, InvalidInputError
from bapipe.lowering import Operation
from bapipe.plan import Plan
from bapipe.simulator import Simulation
from bapipe.structure import stage_by_layer
from bapipe_executor.batch import Batch
from bapipe_executor.fpga.board import Board, Mail
from bapipe_executor.fpga.number_format import NumberFormat
from bapipe_executor.layered_model import LayeredModel, source_of
from bapipe_executor.loss import Loss, microbatch_weights
from bapipe_executor.trainer import OptimizerFactory


@dataclass(frozen=True)
class VirtualRun:
    """What came out: the loss of each step, the parameters and buffers in the end by the names of the whole model, and
    what one step is on the boards. A step that loses a board is never done: no losses.
    """

    losses: tuple[float, ...]
    state: Mapping[str, Tensor]
    emulated: Emulated

    @property
    def report(self) -> EmulationReport:
        """The boards and links over one step."""
        return self.emulated.report


def train_on_boards(
    plan: Plan,
    model: LayeredModel,
    loss: Loss,
    batches: Iterator[Batch],
    steps: int,
    make_optimizer: OptimizerFactory,
    *,
    rounding: NumberFormat | None = None,
    options: EmulationOptions | None = None,
) -> VirtualRun:
    """Trains `model` for `steps` mini-batches as `plan` says, on emulated boards; the model itself stays as it is.

    Raises:
        InvalidInputError: what `emulate` refuses; a network that is not the plan's; too few or wrong batches.
        MissingDependencyError: an operation ended before what it reads was made.
    """
    emulated = emulate(plan, options)
    _check_layers(plan, model)
    boards = _boards(plan, model, loss, rounding)
    trainable = [board for board in boards.values() if any(True for _ in board.named_parameters())]
    optimizers = [make_optimizer(board.named_parameters()) for board in trainable]
    order = execution_order(emulated.simulation)
    losses = []
    for number in range(steps if emulated.report.loss is None else 0):
        batch = next(batches, None)
        if batch is None or batch.size != plan.request.batch_size:
            size = "none" if batch is None else f"one of {batch.size}"
            detail = f"step {number + 1} wants a mini-batch of {plan.request.batch_size} samples, and there is {size}"
            raise InvalidInputError([Fault("wrong_batch", detail, "/data")])
        losses.append(_step(plan, model, loss, batch, boards, order))
        _reduce(list(boards.values()), model.shared_parameters())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return VirtualRun(tuple(losses), _state(boards.values()), emulated)


def execution_order(simulation: Simulation) -> list[tuple[str, Operation]]:
    """(board, operation) as they end; of those that end at one instant forwards go down the pipeline, backwards up."""
    operations = simulation.operations
    rows = zip(
        operations.end_s,
        operations.start_s,
        operations.kind,
        operations.stage,
        operations.microbatch,
        operations.device,
        strict=True,
    )
    ordered = sorted(rows, key=lambda row: (row[0], row[1], row[3] if row[2] == "F" else -row[3], row[4]))
    return [(simulation.devices[row[5]], Operation(row[3], row[2], row[4])) for row in ordered]


def _step(
    plan: Plan,
    model: LayeredModel,
    loss: Loss,
    batch: Batch,
    boards: Mapping[str, Board],
    order: Sequence[tuple[str, Operation]],
) -> float:
    assert plan.schedule is not None
    parts = batch.microbatches(plan.schedule.num_microbatches)
    weights = microbatch_weights(loss, [part.target for part in parts])
    mail = _mail(plan, model)
    total = 0.0
    for name, operation in order:
        k = operation.microbatch
        total += boards[name].execute(operation, parts[k], weights[k], mail)
    return total


def _boards(plan: Plan, model: LayeredModel, loss: Loss, rounding: NumberFormat | None) -> dict[str, Board]:
    held: dict[str, dict[int, Sequence[str]]] = defaultdict(dict)
    for stage in plan.stages:
        for device in stage.devices:
            held[device][stage.index] = stage.layers
    return {device: Board(model, stages, loss, rounding) for device, stages in held.items()}


def _mail(plan: Plan, model: LayeredModel) -> Mail:
    """Every tensor that a stage other than its own reads."""
    stage_of = stage_by_layer(plan)
    made_by: dict[str, int] = {}
    readers: dict[str, set[int]] = defaultdict(set)
    for name in model.names:
        for read in model.reads[name]:
            source, _ = source_of(read)
            if source not in model.inputs and stage_of[source] != stage_of[name]:
                made_by[read] = stage_of[source]
                readers[read].add(stage_of[name])
    return Mail(made_by, {name: frozenset(stages) for name, stages in readers.items()})


def _reduce(boards: Sequence[Board], shared: Sequence[Sequence[str]]) -> None:
    """Each copy of a parameter, on replicas or tied, gets the sum of the gradients of all copies."""
    first = {name: names[0] for names in shared for name in names}
    copies: dict[str, dict[int, nn.Parameter]] = defaultdict(dict)
    for board in boards:
        for name, parameter in board.named_parameters():
            copies[first.get(name, name)][id(parameter)] = parameter
    for group in copies.values():
        gradients = [parameter.grad for parameter in group.values() if parameter.grad is not None]
        if len(group) > 1 and gradients:
            total = torch.stack(gradients).sum(dim=0)
            for parameter in group.values():
                parameter.grad = total.clone()


def _state(boards: Iterable[Board]) -> dict[str, Tensor]:
    """Parameters and buffers; of what several boards hold, those of the first."""
    state: dict[str, Tensor] = {}
    for board in boards:
        for name, tensor in board.layers.state_dict().items():
            state.setdefault(f"layers.{name}", tensor.detach().clone())
    return state


def _check_layers(plan: Plan, model: LayeredModel) -> None:
    planned = {layer.id for layer in plan.request.profile.layers}
    strange = sorted(planned ^ set(model.names))
    if strange:
        where = "plan" if strange[0] in planned else "network"
        detail = f"the plan is not of this network: layer {strange[0]!r} is in the {where} only"
        raise InvalidInputError([Fault("wrong_model", detail, "/model")])
