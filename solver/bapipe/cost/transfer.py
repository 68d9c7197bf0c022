"""Transfer time over a link, and which link joins two devices."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from bapipe.problem import Cluster, Device, Link, PairLink

Pairs = tuple[PairLink, ...]

TABLES = 4
"""Matrices of links that are kept as tables; one is in use at a time."""

_tables: dict[int, tuple[Pairs, dict[frozenset[str], Link]]] = {}


@dataclass(frozen=True)
class Channel:
    """The way from one device to another: its link, and the cards of both hosts where hosts share one (`nic`).

    `resources` are what a transfer keeps busy: the link in this direction, and each card as a whole.
    """

    link: Link
    nic: Link | None
    resources: tuple[Hashable, ...]

    def seconds(self, size_bytes: float) -> float:
        """A transfer takes as long as the slower of link and card."""
        linked_s = transfer_s(self.link, size_bytes)
        return linked_s if self.nic is None else max(linked_s, transfer_s(self.nic, size_bytes))


def channel(cluster: Cluster, source: Device, target: Device) -> Channel:
    """How `source` sends to `target`; cards carry only what leaves a host."""
    link, direction = link_between(cluster, source, target), ("link", source.id, target.id)
    hosts = (source.rack, source.host), (target.rack, target.host)
    if cluster.host_nic is None or hosts[0] == hosts[1]:
        return Channel(link, None, (direction,))
    return Channel(link, cluster.host_nic, (direction, ("card", *hosts[0]), ("card", *hosts[1])))


def transfer_s(link: Link, size_bytes: float) -> float:
    """latency + bytes / bandwidth, in seconds; no bytes are not sent, and a link without bandwidth has only latency."""
    if size_bytes == 0:
        return 0.0
    rate = link.bandwidth_bytes_per_s
    return link.latency_s + (0.0 if rate is None else size_bytes / rate)


def link_between(cluster: Cluster, source: Device, target: Device) -> Link:
    """The link of a pair: its own where one is given, else that of the level at which the two are joined."""
    if cluster.links.pairs:
        own = _by_pair(cluster.links.pairs).get(frozenset((source.id, target.id)))
        if own is not None:
            return own
    levels = cluster.links
    if source.host == target.host and source.rack == target.rack:
        return levels.within_host
    outer = levels.between_hosts if source.rack == target.rack else levels.between_racks
    return outer or levels.between_hosts or levels.within_host


def _by_pair(pairs: Pairs) -> dict[frozenset[str], Link]:
    """The links by their two devices: a full matrix is too long to look through for every transfer.

    Kept by the identity of `pairs`, which is held so that no other tuple gets it.
    """
    kept = _tables.get(id(pairs))
    if kept is not None and kept[0] is pairs:
        return kept[1]
    table = {frozenset(pair.devices): pair.link for pair in reversed(pairs)}
    for old in list(_tables)[: 1 - TABLES]:
        _tables.pop(old, None)
    _tables[id(pairs)] = pairs, table
    return table
