"""Operators found in torch networks, against those of the generators of the examples and against FLOP counts."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bapipe.cost.fpga.phases import phases_of
from bapipe.examples import load_example
from bapipe.operators import Attention, Convolution, Linear, Lstm
from bapipe.problem import Layer, ModelProfile
from bapipe_executor.cut_finder import layered
from bapipe_executor.fpga import operators_of, with_operators
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.models import resnet50, vgg16
from harness.training import Network


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "gpt2"])
def test_macs_are_those_that_torch_counts(name: str) -> None:
    """Those of attention aside, which torch does not count where one kernel of the CPU does it."""
    network = Network(name)
    model, batch = network.model(), next(network.batches(1))
    with FlopCounterMode(display=False) as counter:
        model(**batch.inputs)
    found = operators_of(model, batch.inputs)
    counted = [op for ops in found.values() for op in ops if not isinstance(op, Attention)]
    macs = sum(product.macs for op in counted for product in phases_of(op).forward.products)
    assert 2 * macs == counter.get_total_flops()


@pytest.mark.parametrize(("module", "example"), [(vgg16, "vgg16"), (resnet50, "resnet50")])
def test_full_size_networks_have_the_operators_of_the_examples(module, example: str) -> None:
    with torch.device("meta"):
        model = module.full()
    found = operators_of(model, {"images": torch.empty(1, 3, 224, 224)})
    kinds = (Convolution, Linear)
    wanted = [op for layer in load_example(example).layers for op in layer.operators or () if isinstance(op, kinds)]
    have = [op for ops in found.values() for op in ops if isinstance(op, kinds)]
    assert sorted(map(str, have)) == sorted(map(str, wanted))


def test_an_lstm_says_its_steps_and_directions() -> None:
    network = Network("gnmt")
    found = operators_of(network.model(), next(network.batches(2)).inputs)
    first = [op for op in found["encoder.lstm0"] if isinstance(op, Lstm)]
    assert [(op.in_features, op.hidden, op.steps, op.directions) for op in first] == [(8, 8, 6, 2)]


def test_attention_is_found_where_torch_has_it() -> None:
    network = Network("gpt2")
    found = operators_of(network.model(), next(network.batches(2)).inputs)
    (attention,) = [op for op in found["block0.attention"] if isinstance(op, Attention)]
    assert (attention.queries, attention.keys, attention.heads, attention.head_features) == (12, 12, 2, 8)


def test_the_input_of_the_network_needs_no_gradient() -> None:
    network = Network("vgg16")
    found = operators_of(network.model(), next(network.batches(2)).inputs)
    assert [op.input_gradient for op in found["group0.conv0"] if isinstance(op, Convolution)] == [False]
    assert [op.input_gradient for op in found["group0.conv1"] if isinstance(op, Convolution)] == [True]


def test_layers_that_emit_output_while_they_read_can_stream() -> None:
    network = Network("vgg16")
    model, batch = network.model(), next(network.batches(2))
    names = list(model.names)
    profile = ModelProfile(name="tiny", layers=tuple(Layer(id=name) for name in names))
    streams = {layer.id: layer.streamable for layer in with_operators(profile, model, batch.inputs).layers}
    assert [name for name in names if not streams[name]] == ["linear0", "linear1", "classifier"]


class Sequences(nn.Module):
    """Products under many names: gates, projections, sums over indices, convolutions that grow."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.GRU(16, 12, batch_first=True)
        self.attention = nn.MultiheadAttention(12, 2, batch_first=True)
        self.mix = nn.Parameter(torch.ones(12, 8))
        self.grow = nn.ConvTranspose1d(8, 6, 3, stride=2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.cells(tokens)
        hidden, _ = self.attention(hidden, hidden, hidden)
        return self.grow(torch.einsum("btf,fg->bgt", hidden, self.mix))


def images() -> nn.Module:
    first = [nn.Conv2d(3, 20, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    second = [nn.Conv2d(20, 40, 3, groups=4), nn.BatchNorm2d(40), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(40, 10))


@pytest.mark.parametrize(("network", "shape"), [(images, (3, 16, 16)), (Sequences, (7, 16))])
@pytest.mark.parametrize("exported", [False, True])
def test_networks_of_anyone_have_all_their_products(network, shape: tuple[int, ...], exported: bool) -> None:
    """Graphs that `bapipe profile` exports call other functions than modules do."""
    module, name = network(), "tokens" if network is Sequences else "input"
    inputs = {name: torch.zeros(2, *shape)}
    if exported:
        model = layered(module, inputs)
    else:
        model = LayeredModel({"all": module}, {"all": [name]}, inputs=[name], output="all")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.zeros(1, *shape))
    found = [op for ops in operators_of(model, inputs).values() for op in ops]
    assert (
        2 * sum(product.macs for op in found for product in phases_of(op).forward.products) == counter.get_total_flops()
    )


def test_an_lstm_of_several_layers_is_as_many() -> None:
    lstm = nn.LSTM(5, 8, num_layers=3, bidirectional=True, batch_first=True)
    model = LayeredModel({"all": lstm}, {"all": ["input"]}, inputs=["input"], output="all:0")
    (found,) = operators_of(model, {"input": torch.zeros(1, 7, 5)}).values()
    rows = [(op.in_features, op.hidden, op.steps, op.directions) for op in found if isinstance(op, Lstm)]
    assert rows == [(5, 8, 7, 2), (16, 8, 7, 2), (16, 8, 7, 2)]


def test_windows_that_overlap_are_counted_whole() -> None:
    (pooling,) = [
        op
        for ops in operators_of(
            LayeredModel({"all": nn.MaxPool2d(3, 2, 1)}, {"all": ["input"]}, inputs=["input"], output="all"),
            {"input": torch.zeros(1, 2, 8, 8)},
        ).values()
        for op in ops
    ]
    assert (pooling.out_elements, pooling.window) == (32, 9)
