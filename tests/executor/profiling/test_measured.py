"""A measured profile holds what the layers are, make and keep, and times that are each other's parts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from torch import Tensor, nn  # noqa: E402

from bapipe.errors import InvalidInputError  # noqa: E402
from bapipe.problem import Edge, ModelProfile  # noqa: E402
from bapipe_executor.batch import Batch  # noqa: E402
from bapipe_executor.layered_model import LayeredModel  # noqa: E402
from bapipe_executor.profiling import measured_profile  # noqa: E402


def ignore(done: int, total: int, layer: str) -> None:
    assert done < total


def profile(
    model: LayeredModel, batch_of: Any, *sizes: int, loss: Any = None, autocast: torch.dtype | None = None
) -> ModelProfile:
    return measured_profile(
        model,
        loss,
        batch_of,
        name="net",
        device=torch.device("cpu"),
        device_kind="here",
        microbatch_sizes=sizes or (2, 4),
        repeats=1,
        report=ignore,
        autocast=autocast,
    )


def rows(width: int) -> Any:
    return lambda size: Batch({"x": torch.ones(size, width)}, torch.zeros(size, width))


def chain(*layers: nn.Module) -> LayeredModel:
    names = [f"layer{index}" for index in range(len(layers))]
    reads = dict(zip(names, [("x",), *((name,) for name in names)], strict=False))
    return LayeredModel(dict(zip(names, layers, strict=True)), reads, inputs=("x",), output=names[-1])


def test_a_network_of_every_kind_gets_a_profile() -> None:
    for name in ("vgg16", "resnet50", "gpt2", "gnmt", "unet"):
        network = import_module(f"bapipe_executor.models.{name}")

        made = profile(network.tiny(), lambda size: next(iter(network.tiny_data(size))), 2, loss=network.loss())  # noqa: B023

        assert [layer.id for layer in made.layers] == list(network.tiny().names)
        assert all(layer.times[0].device_kind == "here" for layer in made.layers)
        assert sum(layer.parameter_bytes for layer in made.layers) == sum(p.nbytes for p in network.tiny().parameters())


def test_bytes_of_a_chain_are_those_that_autograd_keeps() -> None:
    made = profile(chain(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), rows(8))

    first, relu, last = made.layers
    assert [layer.output_bytes_per_sample for layer in made.layers] == [64, 64, 16]
    # ReLU keeps its result, which the last layer keeps as well: once. The model's input is there anyway.
    assert [layer.stash_bytes_per_sample for layer in made.layers] == [0, 64, 0]
    assert [first.parameter_bytes, relu.parameter_bytes, last.parameter_bytes] == [4 * 144, 0, 4 * 68]
    assert [layer.forward_flops_per_sample for layer in made.layers] == [2 * 8 * 16, 0, 2 * 16 * 4]


def test_mixed_precision_halves_what_products_make_and_keeps_their_weights_again() -> None:
    first, last = profile(chain(nn.Linear(8, 16), nn.Linear(16, 4)), rows(8), 2, autocast=torch.bfloat16).layers

    assert [first.output_bytes_per_sample, last.output_bytes_per_sample] == [32, 8]
    assert first.parameter_bytes == 4 * 144
    # Its input and its weights, rounded for this micro-batch of two samples; the next layer keeps its output.
    assert first.stash_bytes_per_sample == 2 * 8 + 32
    assert last.stash_bytes_per_sample == 2 * 64 / 2


def test_the_backward_is_split_where_it_can_be() -> None:
    first, relu, last = (
        layer.times[0] for layer in profile(chain(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64)), rows(8)).layers
    )

    assert first.input_gradient_s == 0  # nothing waits for the gradient of the model's input
    assert relu.weight_gradient_s == 0
    assert last.input_gradient_s + last.weight_gradient_s == pytest.approx(last.backward_s)
    assert all(time.forward_s > 0 and time.backward_s > 0 for time in (first, relu, last))


def test_the_source_says_what_was_measured_and_how() -> None:
    source = profile(chain(nn.Linear(8, 8)), rows(8)).source

    assert f"torch {torch.__version__}, least of 3 × 1 runs a layer; an operation on one number takes" in source


def test_the_loss_counts_for_the_layer_that_it_reads() -> None:
    layers = chain(nn.Linear(8, 8), nn.Sigmoid())
    loss = nn.Sequential(nn.Linear(16, 1024), nn.Linear(1024, 1))

    class Costly(nn.Module):
        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            return loss(torch.cat((output, target), dim=-1)).mean()

    without, with_loss = profile(layers, rows(8)), profile(layers, rows(8), loss=Costly())

    assert with_loss.layers[1].forward_flops_per_sample == 2 * (16 * 1024 + 1024)
    assert with_loss.layers[1].stash_bytes_per_sample >= 4 * 1024
    assert with_loss.layers[0].stash_bytes_per_sample == without.layers[0].stash_bytes_per_sample


class Halves(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :3] * 2, x[:, 3:] * 3


class Swap(nn.Module):
    def forward(self, left: Tensor, both: tuple[Tensor, Tensor]) -> Tensor:
        return left + both[1][:, :3]


def test_a_tuple_is_sent_tensor_by_tensor() -> None:
    layers = {"halves": Halves(), "half": nn.Linear(3, 3), "swap": Swap()}
    model = LayeredModel(
        layers, {"halves": ("x",), "half": ("halves:0",), "swap": ("half", "halves")}, inputs=("x",), output="swap"
    )

    assert profile(model, rows(8)).edges == (
        Edge(source="halves", target="half", bytes_per_sample=12.0, tensor="0"),
        Edge(source="half", target="swap"),
        Edge(source="halves", target="swap", bytes_per_sample=12.0, tensor="0"),
        Edge(source="halves", target="swap", bytes_per_sample=20.0, tensor="1"),
    )


def test_tied_parameters_are_counted_apart_from_the_layers() -> None:
    network = import_module("bapipe_executor.models.gpt2")

    made = profile(network.tiny_tied(), lambda size: next(iter(network.tiny_data(size))), 1)

    (tied,) = made.tied_parameters
    assert tied.layers == ("embedding", "head")
    assert tied.parameter_bytes == network.tiny().layer("head").weight.nbytes
    assert made.layers[-1].parameter_bytes == 0


def test_a_frozen_layer_has_no_gradients_and_the_model_is_left_as_it_was() -> None:
    norm = nn.BatchNorm1d(8)
    frozen = nn.Linear(8, 8).requires_grad_(False)

    made = profile(chain(norm, frozen), rows(8))

    assert made.layers[1].gradient_bytes == 0
    assert norm.num_batches_tracked == 0
    assert torch.equal(norm.running_mean, torch.zeros(8))
    assert all(parameter.grad is None for parameter in norm.parameters())


def test_a_layer_that_changes_its_input_is_named() -> None:
    with pytest.raises(InvalidInputError, match="layer1 changes what it reads in place"):
        profile(chain(nn.Linear(8, 8), nn.ReLU(inplace=True)), rows(8))


def test_what_does_not_grow_with_the_micro_batch_is_warned_about() -> None:
    class Mask(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x @ torch.eye(8).exp()

    made = profile(chain(nn.Linear(8, 8), Mask()), rows(8), 1, 2)

    assert any("not in proportion to the micro-batch, by layer1" in warning for warning in made.warnings)
