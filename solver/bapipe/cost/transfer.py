"""Transfer time over a link, and which link joins two devices."""

from __future__ import annotations

from bapipe.problem import Cluster, Device, Link


def transfer_s(link: Link, size_bytes: float) -> float:
    """latency + bytes / bandwidth, in seconds; no bytes are not sent, and a link without bandwidth has only latency."""
    if size_bytes == 0:
        return 0.0
    rate = link.bandwidth_bytes_per_s
    return link.latency_s + (0.0 if rate is None else size_bytes / rate)


def link_between(cluster: Cluster, source: Device, target: Device) -> Link:
    """The link of a pair: its own where one is given, else that of the level at which the two are joined."""
    for pair in cluster.links.pairs:
        if {source.id, target.id} == set(pair.devices):
            return pair.link
    levels = cluster.links
    if source.host == target.host and source.rack == target.rack:
        return levels.within_host
    outer = levels.between_hosts if source.rack == target.rack else levels.between_racks
    return outer or levels.between_hosts or levels.within_host
