"""The gradients of a mini-batch from those of its micro-batches: summed over the ranks that hold a copy, and clipped.

Every rank adds up the gradients of its own micro-batches, each already weighted by its share of the mini-batch, so the
gradient of the mini-batch is the sum over all ranks that hold a copy, whether replicas or stages with tied parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bapipe_executor.holdings import Holding

Bucket = list[nn.Parameter]


def reduce_gradients(holdings: Sequence[Holding], bucket_bytes: int) -> None:
    """Sums the gradients of what several ranks hold, in buckets of about `bucket_bytes`.

    All ranks that share a bucket start it in the same order; all of them are on their way before the first is awaited.
    """
    started = [
        _start(bucket, holding.group)
        for holding in holdings
        if holding.group is not None
        for bucket in _buckets(holding.parameters, bucket_bytes)
    ]
    for bucket, flat, work in started:
        if work is not None:
            work.wait()
        _spread(bucket, flat)


def squared_norm(holdings: Sequence[Holding], rank: int) -> Tensor | float:
    """The sum of the squares of the gradients of which `rank` is the first holder: over all ranks, each counts once."""
    gradients = [p.grad for h in holdings if h.ranks[0] == rank for p in h.parameters if p.grad is not None]
    norms = [torch.linalg.vector_norm(gradient, dtype=_precise(gradient)).double() for gradient in gradients]
    return torch.stack(norms).square().sum() if norms else 0.0


def scale_gradients(holdings: Sequence[Holding], factor: float) -> None:
    """Multiplies every gradient of this rank."""
    for holding in holdings:
        for parameter in holding.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _buckets(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> Iterator[Bucket]:
    """Trainable parameters of one type, in order, cut where a bucket is full."""
    bucket: Bucket = []
    size = 0
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if bucket and (size >= bucket_bytes or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(parameter)
        size += parameter.numel() * parameter.element_size()
    if bucket:
        yield bucket


def _start(bucket: Bucket, group: dist.ProcessGroup | None) -> tuple[Bucket, Tensor, dist.Work | None]:
    """The gradients of a bucket as one vector, on its way; its last elements count who has a gradient at all."""
    parts = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in bucket]
    present = torch.tensor([float(p.grad is not None) for p in bucket], dtype=parts[0].dtype, device=parts[0].device)
    flat = torch.cat([*parts, present])
    return bucket, flat, dist.all_reduce(flat, group=group, async_op=True)


def _spread(bucket: Bucket, flat: Tensor) -> None:
    """Sets the gradients of a bucket; a parameter that no rank used keeps none, as it would in one process."""
    *parts, present = torch.split(flat, [*(p.numel() for p in bucket), len(bucket)])
    for parameter, part, holders in zip(bucket, parts, present.tolist(), strict=True):
        parameter.grad = part.view_as(parameter).clone() if holders else None
