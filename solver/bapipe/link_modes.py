"""Which schedules the links and devices of a cluster allow, and why not the others.

A schedule is an order; how transfers meet compute makes it one of the paper's variants:

    blocking     1f1b (1F1B-SNO), gpipe
    overlapped   1f1b, 1f1b-so (1F1B-SO), gpipe
    streaming    1f1b (1F1B-AS), fbp-as (FBP-AS, in training), gpipe      between asynchronous devices

Between devices of which one is synchronous a streaming link stores and forwards beside compute: it is overlapped.
Where neighbours are joined in several ways, what all of them allow is left. Data parallelism has no neighbours.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from bapipe.cost.transfer import link_between
from bapipe.problem import Cluster, Device, PlanRequest, ScheduleName

Mode = Literal["blocking", "overlapped", "streaming"]

SCHEDULES: dict[Mode, tuple[ScheduleName, ...]] = {
    "blocking": ("1f1b", "gpipe"),
    "overlapped": ("1f1b", "1f1b-so", "gpipe"),
    "streaming": ("1f1b", "fbp-as", "gpipe"),
}
"""Pipelines by the mode of their links, least memory first."""

PIPELINES: tuple[ScheduleName, ...] = ("1f1b", "1f1b-so", "fbp-as", "gpipe")
"""All of them, least memory first, on every stage."""

VARIANTS: dict[tuple[ScheduleName, Mode], str] = {
    ("1f1b", "blocking"): "1F1B-SNO",
    ("1f1b", "streaming"): "1F1B-AS",
    ("fbp-as", "streaming"): "FBP-AS",
}
"""What the paper calls a schedule over links of one mode, where that is not its own name."""


def mode_between(cluster: Cluster, source: Device, target: Device) -> Mode:
    """How a transfer between two devices meets their compute."""
    mode = link_between(cluster, source, target).mode
    kinds = {kind.name: kind for kind in cluster.kinds}
    synchronous = any(kinds[device.kind].execution == "sync" for device in (source, target))
    return "overlapped" if mode == "streaming" and synchronous else mode


def modes(cluster: Cluster, num_devices: int) -> tuple[Mode, ...]:
    """The modes between neighbours among the first `num_devices` devices, each once; of one device, those of the first
    two.
    """
    first = cluster.devices[: max(2, num_devices)]
    found = dict.fromkeys(mode_between(cluster, source, target) for source, target in pairwise(first))
    return tuple(found) or ("overlapped",)


def pipelines_on(request: PlanRequest, num_devices: int) -> tuple[ScheduleName, ...]:
    """The pipeline schedules that the first `num_devices` devices and their links allow, least memory first."""
    return _allowed_by(request, modes(request.cluster, num_devices))


def pipelines_by_count(request: PlanRequest) -> tuple[tuple[ScheduleName, ...], ...]:
    """`pipelines_on` for one device, two, … and all, in one pass over the links."""
    devices, found = request.cluster.devices, dict.fromkeys(modes(request.cluster, 2))
    allowed = [_allowed_by(request, tuple(found))] * min(2, len(devices))
    for source, target in pairwise(devices[1:]):
        mode = mode_between(request.cluster, source, target)
        same = mode in found
        found[mode] = None
        allowed.append(allowed[-1] if same else _allowed_by(request, tuple(found)))
    return tuple(allowed)


def _allowed_by(request: PlanRequest, found: tuple[Mode, ...]) -> tuple[ScheduleName, ...]:
    splits = request.task == "training" and not blocks_somewhere(request.cluster)
    return tuple(
        name for name in PIPELINES if all(name in SCHEDULES[mode] for mode in found) and (name != "fbp-as" or splits)
    )


def variant(request: PlanRequest, name: ScheduleName, num_devices: int) -> tuple[str, Mode] | None:
    """What the paper calls this schedule on the first devices, and the mode of their links; None: nothing special."""
    found = modes(request.cluster, num_devices)
    called = VARIANTS.get((name, found[0]))
    return (called, found[0]) if called and len(found) == 1 and num_devices > 1 else None


def why_not(request: PlanRequest, name: ScheduleName) -> str:
    """Why no number of devices allows a pipeline schedule, and what does."""
    found = modes(request.cluster, len(request.cluster.devices))
    needed = " or ".join(mode for mode in SCHEDULES if name in SCHEDULES[mode])
    between = " between asynchronous devices" if needed == "streaming" else ""
    if name == "fbp-as" and request.task == "inference":
        return "fbp-as runs backwards beside forwards, and inference has none"
    here = ", ".join(found)
    possible = ", ".join(pipelines_on(request, len(request.cluster.devices)))
    return f"{name} needs links that are {needed}{between}; these are {here}, which allow {possible}"


def blocks_somewhere(cluster: Cluster) -> bool:
    """Whether any link blocks, between neighbours or not."""
    links = [cluster.links.within_host, cluster.links.between_hosts, cluster.links.between_racks]
    links += [pair.link for pair in cluster.links.pairs]
    return any(link is not None and link.mode == "blocking" for link in links)
