"""A layered model is what its layers make, and refuses what it cannot run."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from torch import Tensor, nn  # noqa: E402

from bapipe.errors import InvalidInputError  # noqa: E402
from bapipe_executor.layered_model import LayeredModel  # noqa: E402


class Split(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, :2], x[:, 2:]


class Add(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b


def model(**changes: Any) -> LayeredModel:
    given: dict[str, Any] = {
        "layers": {"h.0": nn.Linear(3, 4), "split": Split(), "update": Add(), "head": nn.Linear(2, 3)},
        "reads": {"h.0": ["x"], "split": ["h.0"], "update": ["split:0", "split:1"], "head": ["update"]},
        "inputs": ["x"],
        "output": "head",
    }
    return LayeredModel(**(given | changes))


def test_it_runs_its_layers_on_what_they_read() -> None:
    subject = model()
    x = torch.randn(5, 3)
    made = subject.layer("h.0")(x)
    assert torch.equal(subject(x=x), subject.layer("head")(made[:, :2] + made[:, 2:]))


def test_names_with_dots_and_names_of_methods_are_kept_apart() -> None:
    names = ("a.b", "a", "pop", "keys", "type", "training", "forward")
    layers = {name: nn.Linear(2, 2) for name in names}
    reads = {name: ["x" if k == 0 else names[k - 1]] for k, name in enumerate(names)}
    subject = LayeredModel(layers, reads, ["x"], names[-1])
    assert all(subject.layer(name) is layers[name] for name in names)
    assert len(subject.state_dict()) == 2 * len(names)
    assert subject(x=torch.ones(1, 2)).shape == (1, 2)


def test_tied_parameters_are_found_by_identity() -> None:
    first, last = nn.Linear(3, 3), nn.Linear(3, 3)
    last.weight = first.weight
    subject = LayeredModel({"first": first, "last": last}, {"first": ["x"], "last": ["first"]}, ["x"], "last")
    assert subject.shared_parameters() == (("layers.first.weight", "layers.last.weight"),)
    assert model().shared_parameters() == ()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"reads": {"h.0": ["y"]}}, "dangling_reference"),
        ({"reads": {"h.0": ["head"]}}, "backward_edge"),
        ({"reads": {"h.0": ["x"], "nobody": ["x"]}}, "dangling_reference"),
        ({"reads": {"h.0": ["x:first"]}}, "wrong_name"),
        ({"output": "x"}, "dangling_reference"),
        ({"inputs": ["x", "head"]}, "duplicate_id"),
        ({"inputs": ["x", "x"]}, "duplicate_id"),
        ({"layers": {}}, "too_short"),
        ({"layers": {"a:b": nn.Identity()}, "reads": {}, "output": "a:b"}, "wrong_name"),
    ],
)
def test_what_cannot_run_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        model(**changes)
    assert code in {fault.code for fault in caught.value.faults}
