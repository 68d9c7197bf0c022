"""Gradient all-reduce: seconds of a ring, and the buckets in which gradients are reduced."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from bapipe.cost.transfer import Channel, channel
from bapipe.problem import Cluster, Device


@dataclass(frozen=True)
class GradientBucket:
    """Gradients reduced together. Complete when the backward of layer number `last_layer` has ended."""

    size_bytes: float
    last_layer: int


def ring_channels(cluster: Cluster, devices: Sequence[Device]) -> tuple[Channel, ...]:
    """The ring that takes the devices in their order and closes; empty for a single device."""
    if len(devices) < 2:
        return ()
    following = [*devices[1:], devices[0]]
    return tuple(channel(cluster, source, target) for source, target in zip(devices, following, strict=True))


def ring_all_reduce_s(channels: Sequence[Channel], size_bytes: float) -> float:
    """Seconds to sum `size_bytes` over the r devices of a ring, each of which has a channel to the next.

    2(r-1) · max over links of (latency + bytes / (r · bandwidth)): in each of 2(r-1) rounds every device passes one of
    r equal parts on, and a round takes as long as its slowest link. On equal links that is
    2(r-1)/r · bytes / bandwidth + 2(r-1) · latency. Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
    clusters of workstations", J. Parallel Distrib. Comput. 69 (2009). A card that hosts share passes the parts of a
    round one after the other.
    """
    if size_bytes == 0 or not channels:
        return 0.0
    part = size_bytes / len(channels)
    card_s: dict[Hashable, float] = {}
    for hop in channels:
        for card in hop.resources[1:]:
            card_s[card] = card_s.get(card, 0.0) + hop.seconds(part)
    return 2 * (len(channels) - 1) * max(*(hop.seconds(part) for hop in channels), *card_s.values())


def ring_bytes(replicas: int, size_bytes: float) -> float:
    """Bytes that cross each link of the ring: 2(r-1)/r of the reduced bytes."""
    return 2 * (replicas - 1) * size_bytes / replicas


def gradient_buckets(gradient_bytes: Sequence[float], limit_bytes: int) -> tuple[GradientBucket, ...]:
    """Buckets over layers given in forward order, filled from the last layer back as their gradients appear.

    A bucket closes once it holds `limit_bytes` or more; a layer's gradient is never split. So does torch's
    DistributedDataParallel, but for its smaller first bucket.
    """
    buckets = []
    held, last = 0.0, 0
    for layer in reversed(range(len(gradient_bytes))):
        if gradient_bytes[layer] == 0:
            continue
        held, last = held + gradient_bytes[layer], layer
        if held >= limit_bytes:
            buckets.append(GradientBucket(held, last))
            held = 0.0
    if held:
        buckets.append(GradientBucket(held, last))
    return tuple(buckets)
