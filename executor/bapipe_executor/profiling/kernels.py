"""Which kernels run: the fused ones of the machine's libraries, or the operations that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


@contextmanager
def separate_operations() -> Iterator[None]:
    """Recurrent layers run as the products that they consist of, which can be counted, not as one fused kernel.

    torch's own context managers for this also set what it then warns about.
    """
    libraries: Any = (torch.backends.mkldnn, torch.backends.cudnn)
    before = [library.enabled for library in libraries]
    for library in libraries:
        library.enabled = False
    try:
        yield
    finally:
        for library, enabled in zip(libraries, before, strict=True):
            library.enabled = enabled


class GpuKernels(TorchFunctionMode):
    """Has tensors without data go through operations that keep and move what the fused kernels of a GPU do.

    The CPU takes apart what a GPU fuses: RMS norm (one pass over its input like layer norm, which stands in for it) and
    attention with dropout (whose scores a GPU never writes down).
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the operation, or the one that stands in for it."""
        kwargs = kwargs or {}
        if func is functional.rms_norm:
            return _as_layer_norm(*args, **kwargs)
        if func is functional.scaled_dot_product_attention:
            return _without_dropout(*args, **kwargs)
        return func(*args, **kwargs)


def _as_layer_norm(
    stream: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    return functional.layer_norm(stream, list(normalized_shape), weight, None, eps or torch.finfo(stream.dtype).eps)


def _without_dropout(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, **options: Any
) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, **options)
