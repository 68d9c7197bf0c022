"""What the ranks are, as devices of a cluster."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bapipe.presets import device_kinds
from bapipe.problem import DeviceKind
from bapipe_executor.profiling.device_kinds import kind_of


@dataclass(frozen=True)
class Worker:
    """A rank: where it runs, on what, and how much memory there is for all ranks that share it."""

    host: str
    kind: str
    memory_bytes: int
    type: str


def this_worker(device: torch.device, kind: str | None) -> Worker:
    """The rank that calls. `kind` None: what its device is known by."""
    if device.type == "cuda":
        memory_bytes = torch.cuda.get_device_properties(device).total_memory
    else:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Worker(socket.gethostname(), kind or kind_of(device), memory_bytes, device.type)


def device_ids(workers: Sequence[Worker]) -> list[str]:
    """`host/cpu0`, `host/cpu1`, in the order of the ranks."""
    seen: Counter[str] = Counter()
    ids = []
    for worker in workers:
        ids.append(f"{worker.host}/{worker.type}{seen[worker.host]}")
        seen[worker.host] += 1
    return ids


def kinds_of(workers: Sequence[Worker]) -> tuple[DeviceKind, ...]:
    """Each kind once: the preset of that name, if it says how much memory there is, else a kind with the least memory
    that a rank of it has.

    Ranks on CPUs share the memory of their host.
    """
    sharing = Counter(worker.host for worker in workers)
    shares: dict[str, list[int]] = {}
    for worker in workers:
        share = worker.memory_bytes if worker.type == "cuda" else worker.memory_bytes // sharing[worker.host]
        shares.setdefault(worker.kind, []).append(share)
    return tuple(_kind(name, min(sizes)) for name, sizes in shares.items())


def _kind(name: str, memory_bytes: int) -> DeviceKind:
    preset = device_kinds().get(name)
    if preset is not None and preset.memory_bytes is not None:
        return preset
    source = "bapipe probe: what torch sees of a GPU, or a host's memory over its ranks"
    return DeviceKind(name=name, memory_bytes=memory_bytes, sources={"memory_bytes": source})
