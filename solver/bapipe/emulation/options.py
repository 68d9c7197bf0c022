"""What is to go wrong in an emulation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from bapipe.errors import Fault
from bapipe.faults import Document, Name, Seconds, duplicate_faults, unknown_reference
from bapipe.plan import Plan
from bapipe.problem import Cluster

Speed = Annotated[float, Field(strict=True, ge=1e-6, le=1e6, allow_inf_nan=False)]
Chance = Annotated[float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False)]


class SlowBoard(Document):
    """A board that runs at `speed` times its own: compute and memory off chip."""

    device: Name
    speed: Speed


class LossyLink(Document):
    """A link, both directions, that loses this share of the chunks; each is sent again until it arrives."""

    devices: tuple[Name, Name]
    loss: Chance


class DeadBoard(Document):
    """A board that stops for ever at a time of the step."""

    device: Name
    at_s: Seconds


class EmulationOptions(Document):
    """Faults to emulate; `seed` settles which chunks are lost."""

    slow_boards: tuple[SlowBoard, ...] = ()
    lossy_links: tuple[LossyLink, ...] = ()
    dead_boards: tuple[DeadBoard, ...] = ()
    seed: Annotated[int, Field(strict=True, ge=0, le=2**63)] = 0


class EmulationRequest(Document):
    """What is to be emulated: a plan on FPGAs, and what goes wrong on them."""

    plan: Plan
    options: EmulationOptions = EmulationOptions()


def option_faults(options: EmulationOptions, cluster: Cluster) -> Iterator[Fault]:
    """Boards that the cluster does not have, and what is said twice."""
    known = [device.id for device in cluster.devices]
    yield from duplicate_faults(list(options.slow_boards), "/slow_boards", "slow board", key="device")
    yield from duplicate_faults(list(options.dead_boards), "/dead_boards", "dead board", key="device")
    for k, slow in enumerate(options.slow_boards):
        yield from unknown_reference(slow.device, known, f"/slow_boards/{k}/device", "device")
    for k, lossy in enumerate(options.lossy_links):
        for end, name in enumerate(lossy.devices):
            yield from unknown_reference(name, known, f"/lossy_links/{k}/devices/{end}", "device")
        first, second = lossy.devices
        if first == second:
            yield Fault("self_link", f"device {first!r} has no link to itself", f"/lossy_links/{k}/devices")
        if any(frozenset(lossy.devices) == frozenset(other.devices) for other in options.lossy_links[:k]):
            detail = f"the link of {first} and {second}, both directions, was already given; give one loss"
            yield Fault("duplicate_link", detail, f"/lossy_links/{k}/devices")
    for k, dead in enumerate(options.dead_boards):
        yield from unknown_reference(dead.device, known, f"/dead_boards/{k}/device", "device")


def with_slow_boards(cluster: Cluster, options: EmulationOptions) -> Cluster:
    """The cluster with the speeds that its boards run at."""
    factors = {slow.device: slow.speed for slow in options.slow_boards}
    devices = tuple(
        device.model_copy(update={"speed": device.speed * factors.get(device.id, 1.0)}) for device in cluster.devices
    )
    return cluster.model_copy(update={"devices": devices})
