"""Factories as users might write them, most of them wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bapipe_executor.batch import Batch


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def data(size: int) -> list[Batch]:
    return [batch(size)] * 3


def batch(size: int, width: int = 4, targets: int | None = None) -> Batch:
    return Batch({"input": torch.ones(size, width)}, torch.zeros(targets or size, dtype=torch.long))


def loss() -> nn.Module:
    return nn.CrossEntropyLoss()


def fails(*_: Any) -> Any:
    raise ValueError("the weights are not there")


def leaves(*_: Any) -> Any:
    sys.exit(3)


def makes_nothing(*_: Any) -> None:
    return


def makes_a_number(*_: Any) -> int:
    return 5


def no_batch(size: int) -> list[Batch]:
    return []


def fails_later(size: int) -> Iterator[Batch]:
    raise RuntimeError("the first shard is broken")
    yield


def pairs(size: int) -> list[Any]:
    return [(torch.ones(size, 4), torch.zeros(size))]


def unnamed(size: int) -> list[Any]:
    return [Batch(torch.ones(size, 4), torch.zeros(size))]  # type: ignore[arg-type]


def without_target(size: int) -> list[Any]:
    return [Batch({"input": torch.ones(size, 4)}, None)]  # type: ignore[arg-type]


def scalar_target(size: int) -> list[Any]:
    return [Batch({"input": torch.ones(size, 4)}, torch.tensor(3))]


def one_more(size: int) -> list[Batch]:
    return [batch(size + 1, targets=size)]


def too_wide(size: int) -> list[Batch]:
    return [batch(size, width=5)]


def float_targets(size: int) -> list[Batch]:
    return [Batch(batch(size).inputs, torch.zeros(size))]


def vector_loss() -> nn.Module:
    return nn.CrossEntropyLoss(reduction="none")


def detached_loss() -> Any:
    return lambda output, target: output.detach().sum()


def loss_that_fails() -> Any:
    return lambda output, target: output.no_such_method()


def loss_that_looks_at_its_data() -> Any:
    return lambda output, target: output.sum() if target.sum().item() == 0 else output.mean()


def lbfgs(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.LBFGS([parameter for _, parameter in parameters])


def plateau(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


class Decides(nn.Module):
    """What it does hangs on what it reads; on ones it does nothing but what its children do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        made = self.first(input)
        if made.sum() > 1e9:
            made = made * 2
        return self.second(made)  # type: ignore[no-any-return]
