"""Rounded values against formulas, and gradients that pass."""

from __future__ import annotations

import pytest
import torch

from bapipe.errors import InvalidInputError
from bapipe_executor.fpga import parse_format


def test_fixed_point_has_steps_and_limits() -> None:
    """Q1.2: steps of a quarter from -2 to 1.75."""
    values = torch.tensor([0.1, 0.2, 0.375, -0.7, 3.0, -9.0], dtype=torch.float64)
    assert parse_format("Q1.2")(values).tolist() == [0.0, 0.25, 0.5, -0.75, 1.75, -2.0]


@pytest.mark.parametrize(("text", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_floats_are_those_of_torch(text: str, dtype: torch.dtype) -> None:
    values = torch.linspace(-3, 3, 101, dtype=torch.float64)
    assert torch.equal(parse_format(text)(values), values.to(dtype).double())


def test_gradients_pass_straight_and_whole_numbers_as_they_are() -> None:
    values = torch.tensor([0.1, 5.0], requires_grad=True)
    parse_format("Q1.2")(values).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 1.0]
    tokens = torch.tensor([3, 4])
    assert parse_format("fp16")(tokens) is tokens


@pytest.mark.parametrize("text", ["Q0.0", "Q40.40", "int8", "q7.8", ""])
def test_unknown_formats_are_named(text: str) -> None:
    with pytest.raises(InvalidInputError, match="there is no number format"):
        parse_format(text)
