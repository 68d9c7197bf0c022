"""A linear layer split by its outputs is the same layer: the same outputs, gradients and training, cut anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch
from torch import Tensor, nn

from bapipe.errors import InvalidInputError
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.output_split import split_linear
from harness.orders import greedy
from harness.plans import make_plan
from harness.training import Network, Training, train_in_one_process, train_with_executor

if TYPE_CHECKING:
    from harness.pool import Pool

pytestmark = pytest.mark.xdist_group("executor workers")

WHOLE, SPLIT = Network("vgg16"), Network("vgg16", factory="tiny_split")
LAYER = "layers.linear0"


def joined(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of the split network by the names of the whole one."""
    found = {name: value for name, value in values.items() if not name.startswith(f"{LAYER}:part")}
    for kind in ("weight", "bias"):
        parts = [values[f"{LAYER}:part{number}.{kind}"] for number in range(8)]
        found[f"{LAYER}.{kind}"] = torch.cat(parts)
    return found


def test_parts_start_from_the_same_numbers_bit_by_bit() -> None:
    whole, found = dict(WHOLE.model().named_parameters()), joined(dict(SPLIT.model().named_parameters()))
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)


def test_outputs_loss_and_gradients_are_those_of_the_whole_layer() -> None:
    batch, results = next(WHOLE.batches(6)), []
    for network in (WHOLE, SPLIT):
        model = network.model()
        output = model(**batch.inputs)
        loss = network.loss()(output, batch.target)
        loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        results.append((output, loss, gradients if network is WHOLE else joined(gradients)))
    (output, loss, gradients), (split_output, split_loss, split_gradients) = results
    torch.testing.assert_close(split_output, output, rtol=0, atol=1e-10)
    torch.testing.assert_close(split_loss, loss, rtol=0, atol=1e-10)
    assert split_gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(split_gradients[name], gradient, rtol=0, atol=1e-10)


def stages_between_parts(model: LayeredModel) -> list[tuple[str, ...]]:
    """Two stages, the second of which starts with part 3."""
    place = model.names.index("linear0.part3")
    return [model.names[:place], model.names[place:]]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_two_ranks_with_a_cut_between_parts_train_what_one_process_trains_whole(optimizer: str, pool: Pool) -> None:
    training, layout = Training(optimizer), ((0,), (1,))
    plan = make_plan(SPLIT.model(), stages_between_parts(SPLIT.model()), layout, greedy(layout, 4, split=False), 4)
    expected = train_in_one_process(WHOLE, 4, 2, training)
    answers = pool.run(train_with_executor, 2, SPLIT, plan, training)
    state = joined({name: tensor for _, held in answers for name, tensor in held.items()})
    assert state.keys() == expected.states[0].keys()
    assert max(float((state[name] - tensor).abs().max()) for name, tensor in expected.states[0].items()) <= (
        1e-10 if optimizer == "sgd" else 1e-9
    )
    for losses, _ in answers:
        assert losses == pytest.approx(expected.losses, abs=1e-10, rel=0)


def network(**layers: nn.Module) -> LayeredModel:
    names = list(layers)
    reads = {name: [before] for name, before in zip(names, ["x", *names[:-1]], strict=True)}
    return LayeredModel(layers, reads, inputs=["x"], output=names[-1])


@pytest.mark.parametrize(("outputs", "parts", "sizes"), [(7, 3, [3, 2, 2]), (5, 1, [5]), (4, 4, [1, 1, 1, 1])])
def test_outputs_that_do_not_divide_and_no_bias(outputs: int, parts: int, sizes: list[int]) -> None:
    whole = network(first=nn.Linear(3, outputs, bias=False), act=nn.ReLU()).double()
    whole.layer("first").weight.requires_grad_(False)
    split = split_linear(whole, "first", parts)
    made = [split.layer(f"first.part{number}") for number in range(parts)]
    assert [part.out_features for part in made] == sizes
    assert all(part.bias is None and not part.weight.requires_grad for part in made)
    assert split.layer("act") is whole.layer("act")
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    torch.testing.assert_close(split(x=x), whole(x=x), rtol=0, atol=1e-12)


def tied() -> LayeredModel:
    model = network(first=nn.Linear(3, 3), second=nn.Linear(3, 3))
    model.layer("second").weight = model.layer("first").weight
    return model


@pytest.mark.parametrize(
    ("model", "name", "parts", "text"),
    [
        (network(first=nn.Linear(3, 4)), "frist", 2, "no layer 'frist'; did you mean 'first'"),
        (network(first=nn.ReLU()), "first", 2, "is ReLU; only a torch.nn.Linear"),
        (network(first=nn.Linear(3, 4)), "first", 5, "has 4 outputs: split it into 1 to 4 parts, not 5"),
        (network(first=nn.Linear(3, 4)), "first", 0, "not 0"),
        (tied(), "second", 2, "shares parameters with another layer"),
    ],
)
def test_what_cannot_be_split_is_said(model: Any, name: str, parts: int, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        split_linear(model, name, parts)
