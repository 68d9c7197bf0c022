"""A backward in two halves gives the gradients of a whole one, whatever parameters are used for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch
from torch import Tensor, nn

from bapipe_executor.split_backward import SplitBackward

Forward = Callable[[Tensor], tuple[Tensor, ...]]


class Parts(nn.Module):
    """Layers from which the cases are put together."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.cell = nn.LSTM(4, 4, batch_first=True)
        self.embedding = nn.Embedding(5, 4)
        self.shift = nn.Parameter(torch.randn(4))
        self.other_shift = nn.Parameter(torch.randn(4))

    def tokens(self) -> Tensor:
        found: Tensor = self.embedding(torch.tensor([0, 1, 1]))
        return found


def cases(parts: Parts) -> dict[str, Forward]:
    return {
        "a chain": lambda x: (parts.b(parts.a(x).relu()),),
        "one layer used twice in a row": lambda x: (parts.a(parts.a(x).tanh()),),
        "one layer on the way and beside it": lambda x: (parts.a(x), parts.a(parts.tokens())),
        "an output that the input does not reach": lambda x: (x * 2, parts.a(parts.tokens())),
        "a branch beside the way that joins it": lambda x: (parts.b(parts.a(x) + parts.a(parts.tokens())),),
        "a recurrent layer": lambda x: (parts.cell(x.unsqueeze(1).expand(3, 5, 4))[0],),
        "two parameters with one gradient": lambda x: (x + parts.shift + parts.other_shift,),
        "an input passed on": lambda x: (x, parts.a(x)),
        "a view": lambda x: (parts.a(x)[:, :2], parts.a(x).t()),
    }


@pytest.mark.parametrize("name", list(cases(Parts())))
def test_both_halves_are_the_whole(name: str) -> None:
    torch.manual_seed(3)
    parts = Parts().double()
    forward = cases(parts)[name]
    x = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    gradients = [torch.randn_like(output) for output in forward(x)]
    for _ in range(2):
        torch.autograd.backward(forward(x), gradients)
    expected = {n: p.grad for n, p in parts.named_parameters()}
    expected_input = x.grad
    assert expected_input is not None
    parts.zero_grad()
    total = torch.zeros_like(x)
    for _ in range(2):
        split = SplitBackward(forward(x), gradients, [x, torch.tensor(1)], parts.parameters())
        first, second = split.input_gradients()
        split.weight_gradients()
        assert first is not None
        assert second is None
        total += first
    torch.testing.assert_close(total, expected_input, rtol=0, atol=1e-12)
    for n, p in parts.named_parameters():
        torch.testing.assert_close(p.grad, expected[n], rtol=0, atol=1e-12)


def test_weights_wait_for_the_second_half_unless_the_way_uses_them_twice() -> None:
    parts = Parts().double()
    x = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    outputs = (parts.b(parts.a(parts.a(x))), parts.tokens())
    split = SplitBackward(outputs, [torch.ones_like(o) for o in outputs], [x], parts.parameters())
    split.input_gradients()
    assert parts.a.weight.grad is not None
    assert parts.b.weight.grad is None
    assert parts.embedding.weight.grad is None
    split.weight_gradients()
    assert parts.b.weight.grad is not None
    assert parts.embedding.weight.grad is not None


def test_without_an_input_that_has_a_gradient_all_is_in_the_second_half() -> None:
    parts = Parts()
    loss = parts.a(torch.randn(3, 4)).sum()
    split = SplitBackward([loss], None, [torch.zeros(2)], parts.parameters())
    assert split.input_gradients() == (None,)
    assert parts.a.weight.grad is None
    split.weight_gradients()
    assert parts.a.weight.grad is not None
