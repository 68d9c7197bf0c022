"""FLOPs of fused attention, for every backend, and where several queries share keys and values.

Scores and context are two products, 2·n·h·q·k·d FLOPs each, for n samples, h heads of width d, q queries and k keys.
The backward computes the scores again and four products more. A causal mask is not taken off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5


def _forward(query: Tensor, key: Tensor, *_args: Any, out_val: Any = None, **_options: Any) -> int:
    return FORWARD_PRODUCTS * _product(query, key)


def _backward(_gradient: Tensor, query: Tensor, key: Tensor, *_args: Any, out_val: Any = None, **_options: Any) -> int:
    return BACKWARD_PRODUCTS * _product(query, key)


def _product(query: Tensor, key: Tensor) -> int:
    samples, heads, queries, width = query.shape
    return 2 * samples * heads * queries * key.shape[-2] * width


for _formula in (_forward, _backward):
    setattr(_formula, "_get_raw", True)  # noqa: B010 - has FlopCounterMode hand over tensors, not shapes

ATTENTION_FLOPS: dict[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    aten._scaled_dot_product_flash_attention: _forward,
    aten._scaled_dot_product_efficient_attention: _forward,
    aten._scaled_dot_product_cudnn_attention: _forward,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
    aten._scaled_dot_product_flash_attention_backward: _backward,
    aten._scaled_dot_product_efficient_attention_backward: _backward,
    aten._scaled_dot_product_cudnn_attention_backward: _backward,
}
