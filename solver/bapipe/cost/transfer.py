"""Transfer time over a link, and which link joins two devices."""

from __future__ import annotations

from bapipe.problem import Cluster, Device, Link


def transfer_s(link: Link, size_bytes: float) -> float:
    """latency + bytes / bandwidth, in seconds; a tensor of no bytes is not sent, and a free link costs nothing."""
    if size_bytes == 0 or link.bandwidth_bytes_per_s is None:
        return 0.0
    return link.latency_s + size_bytes / link.bandwidth_bytes_per_s


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
