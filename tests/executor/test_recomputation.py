"""Layers that run again before their backward give the gradients of layers that run once, and keep what they read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch
from torch import Tensor, nn

from bapipe_executor.recomputation import Recomputation
from bapipe_executor.split_backward import SplitBackward


class Layers(nn.Module):
    """Two layers with dropout between, and how often they have run."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.runs = 0

    def run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.runs += 1
        made = nn.functional.dropout(self.first(x).tanh(), 0.5)
        return self.second(made), made.argmax(-1)


@pytest.fixture
def layers() -> Layers:
    torch.manual_seed(5)
    return Layers().double()


def input_of(requires_grad: bool = True) -> Tensor:
    return torch.arange(12, dtype=torch.double).reshape(3, 4).div(7).requires_grad_(requires_grad)


def recomputed(layers: Layers, x: Tensor) -> tuple[Recomputation, tuple[Tensor, ...]]:
    torch.manual_seed(6)
    recomputation = Recomputation(layers.run, list(layers.parameters()), nullcontext)
    return recomputation, recomputation((x,), [True, False])


def expected(layers: Layers) -> tuple[Tensor, Tensor | None, dict[str, Tensor | None]]:
    """Output, gradient of the input, gradients of the parameters of layers that run once."""
    torch.manual_seed(6)
    x = input_of()
    output, _ = layers.run(x)
    output.sum().backward()
    gradients = {name: parameter.grad for name, parameter in layers.named_parameters()}
    layers.zero_grad()
    layers.runs = 0
    return output, x.grad, gradients


def assert_gradients(layers: Layers, gradients: dict[str, Tensor | None]) -> None:
    for name, parameter in layers.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=0)


def whole(_: Recomputation, output: Tensor, x: Tensor, layers: Layers) -> Tensor | None:
    output.sum().backward()
    return x.grad


def split(recomputation: Recomputation, output: Tensor, x: Tensor, layers: Layers) -> Tensor | None:
    recomputation.defer = True
    backward = SplitBackward([output.sum()], None, [x], layers.parameters(), [recomputation.anchor])
    (gradient,) = backward.input_gradients()
    assert layers.second.weight.grad is None
    backward.weight_gradients()
    recomputation.weight_gradients()
    return gradient


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("backward", [whole, split])
def test_gradients_are_those_of_one_run(layers: Layers, backward: Callable[..., Tensor | None], ahead: bool) -> None:
    output, input_gradient, gradients = expected(layers)
    x = input_of()
    recomputation, (found, indices) = recomputed(layers, x)
    torch.testing.assert_close(found, output, rtol=0, atol=0)
    assert not indices.requires_grad
    assert layers.runs == 1
    torch.rand(3)
    drawn = torch.get_rng_state()
    if ahead:
        recomputation.again()
        assert layers.runs == 2
    torch.testing.assert_close(backward(recomputation, found, x, layers), input_gradient, rtol=0, atol=0)
    assert layers.runs == 2
    assert torch.equal(torch.get_rng_state(), drawn)
    assert_gradients(layers, gradients)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_is_beside_the_way_runs_in_the_second_half(layers: Layers, requires_grad: bool) -> None:
    _, _, gradients = expected(layers)
    way = torch.ones(3, 4, dtype=torch.double, requires_grad=requires_grad)
    recomputation, (found, _) = recomputed(layers, input_of(requires_grad=False))
    recomputation.defer = True
    backward = SplitBackward([(way * 2).sum(), found.sum()], None, [way], layers.parameters(), [recomputation.anchor])
    backward.input_gradients()
    assert layers.runs == 1
    recomputation.defer = False
    backward.weight_gradients()
    recomputation.weight_gradients()
    assert layers.runs == 2
    assert_gradients(layers, gradients)


def test_nothing_is_saved_in_between(layers: Layers) -> None:
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        recomputed(layers, input_of())
    assert saved == []


def test_without_gradients_it_runs_as_it_is(layers: Layers) -> None:
    with torch.no_grad():
        _, (found, _) = recomputed(layers, input_of())
    assert not found.requires_grad
    assert layers.runs == 1


def test_a_layer_that_changes_what_it_reads_is_refused() -> None:
    recomputation = Recomputation(lambda x: (x.relu_(),), [], nullcontext)
    with pytest.raises(RuntimeError, match="in place"):
        recomputation((input_of() * 1,), [True])
