"""What the cut finder makes of a network computes the same: outputs, gradients and buffers, bit by bit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from bapipe.errors import InvalidInputError  # noqa: E402
from bapipe_executor.cut_finder import layered  # noqa: E402
from bapipe_executor.layered_model import LayeredModel  # noqa: E402
from bapipe_executor.normalisation import running_statistics, updates_statistics  # noqa: E402


def run(model: nn.Module, parameters: list[nn.Parameter], inputs: Mapping[str, Tensor]) -> list[Tensor | None]:
    """Outputs and gradients, of the same random numbers every time."""
    torch.manual_seed(0)
    made = model(**inputs)
    outputs = list(made) if isinstance(made, tuple) else [made]
    loss = torch.stack([output.double().pow(2).sum() for output in outputs]).sum()
    return [*outputs, *torch.autograd.grad(loss, parameters, allow_unused=True)]


def assert_same(model: nn.Module, **inputs: Tensor) -> LayeredModel:
    """Cuts the model and compares it with itself, on other samples than it was cut with, and more of them."""
    found = layered(model, {name: tensor[:2] for name, tensor in inputs.items()})
    parameters, buffers = list(model.parameters()), dict(model.named_buffers())
    before = {name: buffer.clone() for name, buffer in buffers.items()}

    expected = run(model, parameters, inputs)
    moved = {name: buffer.clone() for name, buffer in buffers.items()}
    for name, buffer in buffers.items():
        buffer.copy_(before[name])
    actual = run(found, parameters, inputs)

    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    assert all(torch.equal(moved[name], buffer) for name, buffer in buffers.items())
    assert {id(parameter) for parameter in found.parameters()} <= {id(parameter) for parameter in parameters}
    return found


def kinds(model: LayeredModel) -> list[str]:
    return [type(model.layer(name)).__name__ for name in model.names]


class Block(nn.Module):
    """A transformer block as GPT-2's are written: a mask in a buffer, a projection of three parts, two skips."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.register_buffer("causal", torch.tril(torch.ones(32, 32, dtype=torch.bool)).view(1, 1, 32, 32))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        samples, tokens, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(samples, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-1, -2)) / 4
        scores = scores.masked_fill(~(self.causal[:, :, :tokens, :tokens] & mask), -1e9)
        mixed = functional.dropout(scores.softmax(-1), 0.1, self.training) @ v
        x = x + self.c_proj(mixed.transpose(1, 2).reshape(samples, tokens, width))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50, 16), nn.Embedding(32, 16)
        self.h = nn.ModuleList(Block() for _ in range(3))
        self.ln_f, self.lm_head = nn.LayerNorm(16), nn.Linear(16, 50, bias=False)
        self.lm_head.weight = self.wte.weight

    @torch.no_grad()
    def padding(self, input_ids: Tensor) -> Tensor:
        return (input_ids != 0)[:, None, None, :]

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        mask = self.padding(input_ids)
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.h:
            x = block(x, mask)
        return self.lm_head(self.ln_f(x))


def test_gpt2_with_masks_positions_and_tied_weights() -> None:
    torch.manual_seed(1)

    found = assert_same(Gpt2(), input_ids=torch.randint(0, 50, (3, 12)))

    assert found.names[:2] == ("wte", "wpe")
    assert {"h.1.c_attn", "h.1.mlp.0", "ln_f", "lm_head"} <= set(found.names)
    (tied,) = found.shared_parameters()
    assert len(tied) == 2
    # The mask is made from the model's input wherever it is read: no layer sends it.
    readers = [name for name in found.names if "input_ids" in found.reads[name]]
    assert len(readers) == 4
    assert sum("wpe" in found.reads[name] for name in found.names) == 2


class Bottleneck(nn.Module):
    """A residual block as torchvision writes it: one ReLU for all places, in place, and `+=`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.layer1 = nn.Sequential(Bottleneck(8), Bottleneck(8))
        self.fc = nn.Linear(8, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.layer1(functional.max_pool2d(functional.relu(self.stem(images)), 2))
        return self.fc(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


def test_residual_blocks_that_work_in_place() -> None:
    found = assert_same(ResNet(), images=torch.randn(4, 3, 12, 12))

    assert {"stem", "layer1.0.conv1", "layer1.0.bn1", "layer1.1.bn2", "fc"} <= set(found.names)
    assert kinds(found).count("BatchNorm2d") == 4


class Wrapped(nn.Module):
    """A reference network behind a module that says nothing of its layers."""

    def __init__(self, net: LayeredModel) -> None:
        super().__init__()
        self.net = net

    def forward(
        self, images: Tensor | None = None, source: Tensor | None = None, translation: Tensor | None = None
    ) -> Any:
        if images is None:
            return self.net(source=source, translation=translation)
        return self.net(images=images)


@pytest.mark.parametrize("name", ["unet", "gnmt"])
def test_reference_networks_are_found_again(name: str) -> None:
    network = import_module(f"bapipe_executor.models.{name}")
    batch = next(iter(network.tiny_data(3)))

    found = assert_same(Wrapped(network.tiny()), **batch.inputs)

    assert len(found.names) >= len(network.tiny().names) * 3 // 4


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        left, right = torch.tanh(self.left(x)), self.right(x).sigmoid()
        return self.last(left * right + scale * 2), left


def test_a_network_that_returns_a_tuple_and_reads_an_input_late() -> None:
    found = assert_same(Pair(), x=torch.randn(5, 4), scale=torch.randn(5, 1))

    assert found.inputs == ("x", "scale")
    assert "scale" not in found.reads[found.names[0]]


class WritesTwice(nn.Module):
    """Reads a tensor again, by another name, after it was changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        base = self.first(x)
        view = base[:, :2]
        view.add_(1.0)
        return self.third(self.second(base) + base)


def test_a_change_that_is_seen_elsewhere_stays_in_one_layer() -> None:
    assert_same(WritesTwice(), x=torch.randn(3, 4))


class Decides(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x


class SharedNorm(nn.Module):
    """Its norm, and the buffer that it keeps, are used at both ends of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.last = nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(6, 4))
        self.before, self.after = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        with torch.no_grad():
            self.seen[0] = x.mean(0)
        x = self.norm(self.last(self.norm(self.first(x))))
        return self.after(x + self.seen.sum(0))


def test_a_buffer_that_is_changed_is_in_one_layer_only() -> None:
    found = assert_same(SharedNorm(), x=torch.randn(5, 4))

    assert found.names == ("before", "norm", "after")
    assert [len(list(found.layer(name).buffers())) for name in found.names] == [0, 4, 0]


class ChangesItsInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x[:, 0] = 0
        return self.linear(x) + x


def test_a_network_that_decides_by_its_data_is_taken_as_its_children() -> None:
    model = nn.Sequential(nn.Linear(4, 8), Decides(), nn.Linear(8, 2))

    found = layered(model, {"input": torch.randn(3, 4)})

    assert found.names == ("0", "1", "2")
    assert torch.equal(found(input=torch.ones(3, 4)), model(torch.ones(3, 4)))


class BetweenChildren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Sequential(nn.Linear(4, 4), Decides()), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x) + 1)


def test_what_cannot_be_cut_says_why() -> None:
    with pytest.raises(InvalidInputError, match=r"torch\.export says: .* aten.add.Tensor happens between the child"):
        layered(BetweenChildren(), {"x": torch.randn(3, 4)})


class LeavesLayersOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if random.random() < 2:
                x = layer(x)
        return x


def test_layers_left_out_at_random_are_not_left_out_for_ever() -> None:
    with pytest.raises(InvalidInputError, match="draws random numbers of Python or numpy"):
        layered(LeavesLayersOut(), {"x": torch.ones(2, 4)})


class AsDictionary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.linear(x)}


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (nn.Linear(4, 4), {"images": torch.ones(2, 4)}, "cannot be called with the inputs images"),
        (Pair(), {"x": torch.ones(2, 4), "scale": torch.ones(3, 1)}, "first dimension of every input counts samples"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.SyncBatchNorm(4)),
            {"input": torch.ones(2, 4)},
            "Sequential has a SyncBatchN",
        ),
        (AsDictionary(), {"x": torch.ones(2, 4)}, "return a tensor or a tuple of tensors"),
        (ChangesItsInput(), {"x": torch.ones(2, 4)}, "changes its input 'x' in place"),
    ],
)
def test_wrong_use_is_refused(model: nn.Module, inputs: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        layered(model, inputs)


def test_a_network_on_the_meta_device_is_cut_too() -> None:
    with torch.device("meta"):
        model = Gpt2()

    found = layered(model, {"input_ids": torch.zeros(2, 12, dtype=torch.int64, device="meta")})

    assert all(parameter.is_meta for parameter in found.parameters())
    assert "lm_head" in found.names


def test_what_is_returned_has_the_form_that_the_network_gives_it() -> None:
    class One(nn.Sequential):
        def forward(self, x: Tensor) -> tuple[Tensor]:
            return (super().forward(x),)

    found = layered(One(nn.Linear(4, 4)), {"x": torch.ones(2, 4)})

    assert isinstance(found(x=torch.ones(3, 4)), tuple)


class Custom(nn.Module):
    """Modules, and a function of the whole and its input."""

    def __init__(self, function: Any, **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.function(self, x)
        return result


def shares_a_module(net: Any, x: Tensor) -> Tensor:
    for _ in range(3):
        x = x + torch.tanh(net.body(x))
    return net.head(x)


def concatenates_all_before(net: Any, x: Tensor) -> Tensor:
    found = [x]
    for layer in net.body:
        found.append(functional.relu(layer(torch.cat(found, 1)), inplace=True))
    return net.head(torch.cat(found, 1))


def keeps_a_running_mean(net: Any, x: Tensor) -> Tensor:
    made = net.body(x)
    with torch.no_grad():
        net.mean.mul_(0.9).add_(made.mean(0), alpha=0.1)
    return net.head(made - net.mean)


def assigns_to_slices(net: Any, x: Tensor) -> Tensor:
    made = net.body(x)
    made[:, 0] = 0
    made[:, 1:3] += 1
    return net.head(made) + net.head(made * 2)


def counts_with_the_batch_size(net: Any, x: Tensor) -> Tensor:
    samples = x.shape[0]
    return net.head(net.body(x).reshape(samples * 2, 4)).reshape(samples, -1) / samples


def casts_in_between(net: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        made = net.body(x)
    return net.head(made.float())


def draws_random_numbers(net: Any, x: Tensor) -> Tensor:
    made = functional.dropout(net.body(x), 0.5, net.training)
    return net.head(made + torch.randn_like(made))


@pytest.mark.parametrize(
    ("function", "body", "width"),
    [
        (shares_a_module, nn.Linear(8, 8), 8),
        (concatenates_all_before, nn.ModuleList(nn.Linear(8 + 4 * k, 4) for k in range(3)), 20),
        (keeps_a_running_mean, nn.Linear(8, 8), 8),
        (assigns_to_slices, nn.Linear(8, 8), 8),
        (counts_with_the_batch_size, nn.Linear(8, 8), 4),
        (casts_in_between, nn.Linear(8, 8), 8),
        (draws_random_numbers, nn.Linear(8, 8), 8),
    ],
)
def test_what_networks_do_between_their_modules(function: Any, body: nn.Module, width: int) -> None:
    model = Custom(function, body=body, head=nn.Linear(width, 3))
    model.register_buffer("mean", torch.zeros(8))

    found = assert_same(model, x=torch.randn(4, 8))

    assert len(found.names) > 1


def test_statistics_of_a_normalisation_are_found_in_its_graph() -> None:
    """Replicas have them averaged; layers that change them are not recomputed."""
    norms = [nn.BatchNorm1d(4), nn.BatchNorm1d(4).eval(), nn.BatchNorm1d(4, momentum=0.0)]
    model = layered(nn.Sequential(nn.Linear(4, 4), *norms, nn.LayerNorm(4)), {"input": torch.ones(2, 4)})
    found = {name: list(running_statistics(model.layer(name))) for name in model.names}
    assert [name for name, statistics in found.items() if statistics] == ["1"]
    assert [any(each is buffer for each in found["1"]) for buffer in norms[0].buffers()] == [True, True, False]
    assert [name for name in model.names if updates_statistics(model.layer(name))] == ["1"]
