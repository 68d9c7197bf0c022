"""What a trainer does beside running a schedule, set against one process or against a sum done by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch
from torch import Tensor, nn

from bapipe.plan import Plan
from harness.comparison import difference
from harness.jobs import special_model, step_with, steps_of_several_lengths, train_mixed, train_special
from harness.orders import alternating, greedy, one_stage_a_rank
from harness.plans import cut, make_plan
from harness.training import Network, Training, train_with_executor

if TYPE_CHECKING:
    from harness.pool import Pool

pytestmark = pytest.mark.xdist_group("executor workers")

TWO = ((0,), (1,))
EXACT = 1e-10


def plan_of(network: Network, ranks: Any, orders: Any, num_microbatches: int = 4, **options: Any) -> Plan:
    model = network.model()
    return make_plan(model, cut(model, (1, 2, 1, 3)[: len(ranks)]), ranks, orders, num_microbatches, **options)


@pytest.mark.parametrize("layout", [((0,), (1,), (2,)), ((0, 1), (2,), (3,)), ((0, 1), (2,), (1,))])
def test_clipping_and_a_learning_rate_schedule(layout: Any, pool: Pool) -> None:
    network = Network("gpt2")
    subject = plan_of(network, layout, greedy(layout, 4, split=False))
    found = difference(pool, network, subject, Training(max_gradient_norm=0.1, scheduled=True))
    assert max(found.parameters, found.losses) <= EXACT


@pytest.mark.parametrize("layout", [TWO, ((0, 1), (2,)), ((0,), (1,), (0,))])
@pytest.mark.parametrize("split", [False, True])
def test_tied_parameters_of_several_stages(layout: Any, split: bool, pool: Pool) -> None:
    network = Network("gpt2", tie=("embedding/tokens.weight", "head/weight"))
    subject = plan_of(network, layout, greedy(layout, 4, split=split))
    found = difference(pool, network, subject, Training("sgd", max_gradient_norm=0.1))
    assert max(found.parameters, found.losses) <= EXACT


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "unet", "gnmt"])
def test_recomputed_layers(name: str, split: bool, pool: Pool) -> None:
    network = Network(name)
    stages = cut(network.model(), (1, 2))
    safe = [
        [layer for layer in layers if "norm" not in type(network.model().layer(layer)).__name__.lower()]
        for layers in stages
    ]
    subject = plan_of(network, TWO, greedy(TWO, 4, split=split), recomputed={0: safe[0][1:], 1: safe[1]})
    found = difference(pool, network, subject, Training())
    assert max(found.parameters, found.losses) <= EXACT


def test_recomputation_as_an_operation_of_its_own(pool: Pool) -> None:
    network = Network("gpt2")
    orders = [list(alternating(0, range(4), 1)), list(alternating(1, range(4), 0))]
    orders[1] = [part for name in orders[1] for part in ([name.replace("B", "R"), name] if "B" in name else [name])]
    subject = plan_of(network, TWO, orders, recomputed={1: cut(network.model(), (1, 2))[1]})
    assert difference(pool, network, subject, Training()).parameters <= EXACT


@pytest.mark.parametrize("warm_up", [0, 2, 3, 7])
def test_any_warm_up(warm_up: int, pool: Pool) -> None:
    network = Network("unet")
    orders = [alternating(0, range(6), max(1, warm_up)), alternating(1, range(6), warm_up // 2)]
    assert difference(pool, network, plan_of(network, TWO, orders, 6), Training()).parameters <= EXACT


def test_a_last_stage_whose_forwards_are_out_of_order(pool: Pool) -> None:
    network = Network("gnmt")
    orders = [
        ["0F2", "0F0", "0F1", "0F3", "0B2", "0B1", "0B0", "0B3"],
        ["1F2", "1F1", "1B2", "1F0", "1B1", "1B0", "1F3", "1B3"],
    ]
    found = difference(pool, network, plan_of(network, TWO, orders), Training())
    assert max(found.parameters, found.losses) <= EXACT


def test_more_replicas_than_micro_batches(pool: Pool) -> None:
    layout = ((0, 1, 2), (3,))
    network = Network("gpt2")
    subject = plan_of(network, layout, one_stage_a_rank("1f1b", layout, 2), 2)
    assert difference(pool, network, subject, Training("adam")).parameters <= 1e-9


def test_small_buckets_of_gradients(pool: Pool) -> None:
    layout = ((0, 2), (1, 3))
    network = Network("vgg16")
    subject = plan_of(network, layout, one_stage_a_rank("gpipe", layout, 4), gradient_bucket_bytes=100)
    assert difference(pool, network, subject, Training("sgd")).parameters <= EXACT


def test_running_statistics_are_the_mean_over_the_micro_batches_of_the_replicas(pool: Pool) -> None:
    layout = ((0, 1, 2), (3,))
    network, size, count = Network("resnet50"), 2, 4
    subject = plan_of(network, layout, one_stage_a_rank("gpipe", layout, count), count)
    answers = pool.run(train_with_executor, 4, network, subject, Training(steps=1))
    expected = _mean_statistics(network, count, size, {stage: len(ranks) for stage, ranks in enumerate(layout)})
    checked = 0
    for _, state in answers:
        for name, tensor in state.items():
            if name.endswith(("running_mean", "running_var")):
                torch.testing.assert_close(tensor, expected[name], rtol=0, atol=EXACT)
                checked += 1
    assert checked > 8


def _mean_statistics(network: Network, count: int, size: int, replicas: dict[int, int]) -> dict[str, Tensor]:
    """The statistics of every layer after one step, were its replicas run one by one."""
    batch = next(network.batches(count * size))
    found: dict[str, Tensor] = {}
    stages = cut(network.model(), (1, 2))
    for stage, r in replicas.items():
        for replica in range(r):
            model = network.model()
            mine = range(replica, count, r)
            for k in mine:
                model(**{name: tensor[k * size : (k + 1) * size] for name, tensor in batch.inputs.items()})
            for layer in stages[stage]:
                for name, tensor in model.layer(layer).state_dict(prefix=f"layers.{layer.replace('.', ':')}.").items():
                    if name.endswith(("running_mean", "running_var")):
                        found[name] = found.get(name, torch.zeros_like(tensor)) + tensor * len(mine) / count
    return found


@pytest.mark.parametrize("split", [False, True])
def test_layers_in_place_unused_parameters_and_gradients_that_are_views(split: bool, pool: Pool) -> None:
    layout = ((0, 2), (1,), (3,))
    model = special_model()
    stages = [("relu",), ("inplace", "odd"), ("mean",)]
    subject = make_plan(model, stages, layout, greedy(layout, 2, split=split), 2)
    answers = pool.run(train_special, 4, subject, None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    torch.manual_seed(1)
    x = torch.randn(4, 4, dtype=torch.double)
    losses = []
    for _ in range(2):
        parts = [nn.functional.mse_loss(model(x=part), torch.ones(2, 1, dtype=torch.double)) / 2 for part in x.split(2)]
        sum(parts).backward()  # type: ignore[union-attr]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(part.item() for part in parts))
    for found, state in answers:
        assert found == pytest.approx(losses, abs=EXACT)
        for name, tensor in state.items():
            torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=EXACT)


@pytest.mark.parametrize("split", [False, True])
def test_mixed_precision_sends_halves_and_trains_as_one_process_would(split: bool, pool: Pool) -> None:
    network = Network("gpt2")
    subject = plan_of(network, TWO, greedy(TWO, 2, split=split), 2)
    answers = pool.run(train_mixed, 2, network, subject)
    model, loss_of = network.model().float(), network.loss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = network.batches(4)
    for step in range(2):
        batch = next(batches)
        total = 0.0
        count = loss_of.count(batch.target)
        for part in (slice(0, 2), slice(2, 4)):
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_of(model(tokens=batch.inputs["tokens"][part]), batch.target[part])
                loss = loss * (loss_of.count(batch.target[part]) / count)
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        for losses in answers:
            assert losses[step] == pytest.approx(total, abs=1e-5)


def test_a_batch_that_does_not_fit(pool: Pool) -> None:
    network = Network("gpt2")
    subject = plan_of(network, TWO, one_stage_a_rank("1f1b", TWO, 4))
    assert pool.run(step_with, 2, network, subject, 7, False)[0] == [
        "batch_mismatch /inputs/tokens",
        "batch_mismatch /target",
    ]
    assert pool.run(step_with, 2, network, subject, 8, True)[1] == ["dangling_reference /inputs/tokens"]


def test_batches_of_other_lengths(pool: Pool) -> None:
    network = Network("gpt2")
    subject = plan_of(network, TWO, one_stage_a_rank("1f1b", TWO, 4))
    alone = make_plan(network.model(), [network.model().names], ((0,),), one_stage_a_rank("1f1b", ((0,),), 4), 4)
    one = pool.run(steps_of_several_lengths, 1, network, alone)
    for losses in pool.run(steps_of_several_lengths, 2, network, subject):
        assert losses == pytest.approx(one[0], abs=EXACT)
