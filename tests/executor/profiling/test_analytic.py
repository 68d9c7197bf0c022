"""A computed profile counts what a measured one does, and its times are the roofline of each operation."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from bapipe.cost.roofline import Efficiency  # noqa: E402
from bapipe.errors import InvalidInputError  # noqa: E402
from bapipe.presets import device_kinds  # noqa: E402
from bapipe.problem import DeviceKind, ModelProfile  # noqa: E402
from bapipe_executor.batch import Batch  # noqa: E402
from bapipe_executor.layered_model import LayeredModel  # noqa: E402
from bapipe_executor.profiling import analytic_profile, measured_profile  # noqa: E402
from bapipe_executor.profiling.fakes import fake_tensors  # noqa: E402
from bapipe_executor.profiling.roofline_clock import RooflineClock  # noqa: E402

KIND = DeviceKind(name="card", peak_flops={"fp32": 1e12}, memory_bandwidth_bytes_per_s=1e9, launch_overhead_s=1e-6)


def compute(
    model: LayeredModel, loss: Any, batch_of: Any, kind: DeviceKind = KIND, sizes: Any = (1, 2)
) -> ModelProfile:
    return analytic_profile(
        model,
        loss,
        batch_of,
        name="net",
        device_kind=kind,
        efficiency=Efficiency(),
        microbatch_sizes=sizes,
        report=lambda done, total, layer: None,
    )


def seconds(work: Any, *shapes: tuple[int, ...]) -> float:
    clock = RooflineClock(KIND, Efficiency())
    with fake_tensors():
        tensors = [torch.empty(shape) for shape in shapes]
        return clock.time(lambda: work(*tensors))[0]


def test_a_product_takes_the_larger_of_its_flops_and_its_bytes() -> None:
    assert seconds(torch.mm, (1000, 2000), (2000, 3000)) == pytest.approx(1e-6 + max(2 * 6e9 / 1e12, 4 * 11e6 / 1e9))
    assert seconds(torch.mm, (10, 10), (10, 10)) == pytest.approx(1e-6 + 4 * 300 / 1e9)


def test_an_addition_reads_two_and_writes_one_and_a_view_costs_nothing() -> None:
    assert seconds(torch.add, (1000, 1000), (1000, 1000)) == pytest.approx(1e-6 + 12e6 / 1e9)
    assert seconds(lambda x: x.view(-1).unsqueeze(0).expand(7, -1), (1000, 1000)) == 0
    assert seconds(lambda x: torch.empty_like(x), (1000, 1000)) == 0


def test_a_lookup_reads_what_it_writes_not_the_whole_table() -> None:
    def look_up(table: Any) -> Any:
        return functional.embedding(torch.empty(10, dtype=torch.int64), table)

    assert seconds(look_up, (1_000_000, 100)) == pytest.approx(1e-6 + 2 * 4 * 1000 / 1e9)


def test_attention_never_writes_its_scores_and_shares_keys() -> None:
    def attend(query: Any, key: Any) -> Any:
        return functional.scaled_dot_product_attention(query, key, key, dropout_p=0.1, is_causal=True, enable_gqa=True)

    # queries and result 4 × 512 × 64 each, keys and values half of that each; log-sum-exp 4 × 512
    moved = 4 * (2 * 4 * 512 * 64 + 2 * 2 * 512 * 64 + 4 * 512)
    assert seconds(attend, (1, 4, 512, 64), (1, 2, 512, 64)) == pytest.approx(1e-6 + moved / 1e9)


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "gpt2", "unet"])
def test_bytes_and_flops_are_those_of_the_measured_profile(name: str) -> None:
    network = import_module(f"bapipe_executor.models.{name}")

    def batch_of(size: int) -> Batch:
        return next(iter(network.tiny_data(size)))

    with torch.device("meta"):
        made = compute(network.tiny(), network.loss(), batch_of)
    measured = measured_profile(
        network.tiny(),
        network.loss(),
        batch_of,
        name="net",
        device=torch.device("cpu"),
        device_kind="cpu",
        microbatch_sizes=(1, 2),
        repeats=1,
        report=lambda done, total, layer: None,
    )

    assert made.edges == measured.edges
    for computed, real in zip(made.layers, measured.layers, strict=True):
        for field in ("id", "kind", "parameter_bytes", "output_bytes_per_sample", "forward_flops_per_sample"):
            assert getattr(computed, field) == getattr(real, field), computed.id
        assert computed.stash_bytes_per_sample == pytest.approx(real.stash_bytes_per_sample, rel=0.02), computed.id


def test_recurrent_layers_are_counted_by_their_products() -> None:
    network = import_module("bapipe_executor.models.gnmt")

    made = compute(network.tiny(), network.loss(), lambda size: next(iter(network.tiny_data(size))), sizes=(1,))

    lstm = next(layer for layer in made.layers if layer.id == "encoder.lstm2")
    assert lstm.forward_flops_per_sample == 6 * 2 * 4 * 8 * (8 + 8)


def test_layers_that_are_alike_cost_alike_and_settings_tell_others_apart() -> None:
    def attention(heads: int) -> Any:
        return import_module("bapipe_executor.models.gpt2").SelfAttention(16, heads, 0.0)

    layers = {"a": attention(2), "b": attention(2), "c": attention(4)}
    model = LayeredModel(layers, {"a": ("x",), "b": ("a",), "c": ("b",)}, inputs=("x",), output="c")

    made = compute(model, None, lambda size: Batch({"x": torch.ones(size, 8, 16)}, torch.ones(size)))

    first, second, third = (layer.times[0] for layer in made.layers)
    assert first.forward_s == second.forward_s != third.forward_s
    assert first.input_gradient_s < second.input_gradient_s  # the model's input has no gradient


def test_seventy_billion_parameters_are_profiled_without_memory_for_them() -> None:
    network = import_module("bapipe_executor.models.llama")
    with torch.device("meta"):
        model = network.full()

    made = compute(
        model, network.loss(), lambda size: next(iter(network.full_data(size))), device_kinds()["H100"], sizes=(1,)
    )

    assert len(made.layers) == 163
    assert sum(layer.parameter_bytes for layer in made.layers) == 2 * 70_553_706_496
    # 2 FLOPs a parameter and token, embedding and norms excepted, and the attention of 64 heads of 128
    products = 2 * 8192 * (70_553_706_496 - 128_256 * 8192 - 161 * 8192)
    assert sum(layer.forward_flops_per_sample for layer in made.layers) == products + 80 * 4 * 8192**2 * 8192
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_kind_without_the_arithmetic_is_refused() -> None:
    model = LayeredModel({"a": nn.Linear(4, 4, dtype=torch.float64)}, {"a": ("x",)}, inputs=("x",), output="a")

    with pytest.raises(InvalidInputError, match="no peak FLOP/s for fp64"):
        compute(model, None, lambda size: Batch({"x": torch.ones(size, 4, dtype=torch.float64)}, torch.ones(size)))
