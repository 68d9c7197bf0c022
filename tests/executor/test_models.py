"""The reference networks: as large as published, the same every time, and every parameter of them trained."""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor needs torch")

NAMES = ("vgg16", "resnet50", "gpt2", "gnmt", "unet", "llama")
PARAMETERS = {
    "vgg16": 138_357_544,  # arXiv 1409.1556, table 2: 138 million
    "resnet50": 25_557_032,  # torchvision's count
    "gpt2": 354_823_168,  # the published checkpoint of GPT-2 medium
    "unet": 31_031_810,
    "llama": 70_553_706_496,  # the published checkpoint of Llama 3 70B
}


def network(name: str) -> Any:
    return import_module(f"bapipe_executor.models.{name}")


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_full_network_is_as_large_as_published(name: str) -> None:
    with torch.device("meta"):
        model = network(name).full()

    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_network_trains_all_of_its_parameters_in_64_bits(name: str) -> None:
    model = network(name).tiny().double()
    batch = next(iter(network(name).tiny_data(4)))
    inputs = {key: value.double() if value.is_floating_point() else value for key, value in batch.inputs.items()}

    loss = network(name).loss()(model(**inputs), batch.target)
    loss.backward()

    assert loss.dtype == torch.float64
    assert loss.isfinite()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_networks_and_batches_are_the_same_every_time(name: str) -> None:
    states = [network(name).tiny(seed=3).state_dict() for _ in range(2)]
    batches = [next(islice(iter(network(name).tiny_data(2, seed=5)), 4, None)) for _ in range(2)]

    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert all(torch.equal(batches[0].inputs[key], batches[1].inputs[key]) for key in batches[0].inputs)
    assert torch.equal(batches[0].target, batches[1].target)


def test_building_a_network_leaves_the_random_numbers_as_they_were() -> None:
    state = torch.get_rng_state()

    network("gpt2").tiny()

    assert torch.equal(torch.get_rng_state(), state)


def test_a_tied_head_shares_the_weights_of_the_embedding() -> None:
    model = network("gpt2").tiny_tied()

    assert model.layer("head").weight is model.layer("embedding").tokens.weight
    assert len(model.shared_parameters()) == 1


def test_padding_of_the_source_has_no_say_in_the_context() -> None:
    layer = network("gnmt").AttentionLstm(8, 0.0)
    stream, memory = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    source = torch.tensor([[4, 2, 0], [1, 0, 0]])
    changed = memory.masked_fill((source == 0).unsqueeze(-1), 7.0)

    assert torch.equal(layer(stream, memory, source)[1], layer(stream, changed, source)[1])
