"""What workers do in single tests. They import it by name, which a test module has none of."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe_executor.batch import Batch
from bapipe_executor.data_stream import alike
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.trainer import PipelineTrainer
from harness.training import Network, Training


class Untouched(nn.Module):
    """A layer with a parameter that it does not use, and one that works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(self.used(x), inplace=True)


def special_model() -> LayeredModel:
    torch.manual_seed(0)
    layers = {
        "relu": nn.Sequential(nn.Linear(4, 4)),
        "inplace": nn.ReLU(inplace=True),
        "odd": Untouched(),
        "mean": nn.AdaptiveAvgPool1d(1),
    }
    reads = {"relu": ["x"], "inplace": ["relu"], "odd": ["inplace"], "mean": ["odd"]}
    return LayeredModel(layers, reads, ["x"], "mean").double()


def train_special(plan: Plan, dtype: torch.dtype | None) -> tuple[list[float], dict[str, Tensor]]:
    model = special_model()
    trainer = PipelineTrainer(
        plan, model, nn.MSELoss(), lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1), autocast=dtype
    )
    torch.manual_seed(1)
    x = torch.randn(4, 4, dtype=torch.double)
    losses = [trainer.step(Batch({"x": x}, torch.ones(4, 1, dtype=torch.double))) for _ in range(2)]
    return losses, dict(trainer.module.state_dict())


def train_mixed(network: Network, plan: Plan) -> list[float]:
    model = network.model().float()
    trainer = PipelineTrainer(
        plan, model, network.loss(), lambda p: torch.optim.SGD(p, lr=0.1), autocast=torch.bfloat16
    )
    batches = network.batches(plan.request.batch_size)
    return [trainer.step(next(batches)) for _ in range(2)]


def step_with(network: Network, plan: Plan, size: int, drop: bool) -> list[str]:
    trainer = PipelineTrainer(plan, network.model(), network.loss(), Training().make_optimizer)
    batch = next(network.batches(size))
    if drop:
        batch = Batch({}, batch.target)
    try:
        trainer.step(batch)
    except InvalidInputError as error:
        return [f"{fault.code} {fault.pointer}" for fault in error.faults]
    return []


def steps_of_several_lengths(network: Network, plan: Plan) -> list[float]:
    trainer = PipelineTrainer(plan, network.model(), network.loss(), Training().make_optimizer)
    losses = []
    for length in (12, 8, 12):
        batch = next(network.batches(plan.request.batch_size))
        short = Batch({"tokens": batch.inputs["tokens"][:, :length]}, batch.target[:, :length])
        losses.append(trainer.step(short))
    return losses


def data_of_its_own(differ: bool) -> str:
    """Whether the data of the ranks are found to be alike, if they `differ` by rank."""
    values = torch.full((2, 1), float(dist.get_rank() if differ else 0))
    try:
        assert len(list(alike(iter([Batch({"x": values}, values)] * 2)))) == 2
    except InvalidInputError as error:
        return str(error)
    return ""
