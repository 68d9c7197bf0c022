"""The numbers that a design computes with, by straight fake quantisation: values are rounded, gradients pass."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import Tensor

from bapipe.errors import Fault, InvalidInputError

NumberFormat = Callable[[Tensor], Tensor]
"""A tensor as near as the format comes to it, with the gradient of the tensor itself."""

_FLOATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_FIXED = re.compile(r"Q(\d{1,2})\.(\d{1,2})")
_MOST_BITS = 53


def parse_format(text: str) -> NumberFormat:
    """`bf16`, `fp16`, `fp32`, or `Qm.n`: fixed point with a sign, m bits before the point and n behind it.

    Raises:
        InvalidInputError: `unknown_value`.
    """
    if text in _FLOATS:
        return _floating(_FLOATS[text])
    match = _FIXED.fullmatch(text)
    if match is not None and 1 <= int(match[1]) + int(match[2]) <= _MOST_BITS:
        return _fixed(int(match[1]), int(match[2]))
    detail = (
        f"there is no number format {text!r}; take bf16, fp16, fp32 or fixed point such as Q7.8, "
        f"of 1 to {_MOST_BITS} bits and a sign"
    )
    raise InvalidInputError([Fault("unknown_value", detail, "/number_format")])


def _floating(dtype: torch.dtype) -> NumberFormat:
    return lambda tensor: _straight(tensor, lambda value: value.to(dtype).to(tensor.dtype))


def _fixed(whole: int, fraction: int) -> NumberFormat:
    """Steps of 2^-n, from -2^m to 2^m - 2^-n; what is beyond is clipped, halves go to the even neighbour."""
    scale, limit = 2.0**fraction, 2.0**whole
    return lambda tensor: _straight(
        tensor, lambda value: ((value * scale).round() / scale).clamp(-limit, limit - 1 / scale)
    )


def _straight(tensor: Tensor, rounded: Callable[[Tensor], Tensor]) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    value = tensor.detach()
    return tensor + (rounded(value) - value)
