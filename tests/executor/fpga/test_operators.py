"""Operators found in torch networks, against those of the generators of the examples and against FLOP counts."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bapipe.cost.fpga.phases import phases_of
from bapipe.examples import load_example
from bapipe.operators import Attention, Convolution, Linear, Lstm
from bapipe.problem import Layer, ModelProfile
from bapipe_executor.fpga import operators_of, with_operators
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
