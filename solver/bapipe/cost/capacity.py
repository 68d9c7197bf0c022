"""Bytes that a device has."""

from __future__ import annotations

from bapipe.problem import Cluster, Device


def memory_limit_bytes(cluster: Cluster, device: Device) -> int | None:
    """The bytes that a device has, by itself or by its kind; of an FPGA no more than off chip. None: unlimited."""
    if device.memory_bytes is not None:
        return device.memory_bytes
    kind = next(kind for kind in cluster.kinds if kind.name == device.kind)
    known = (kind.memory_bytes, kind.fpga.off_chip_bytes if kind.fpga else None)
    return min((size for size in known if size is not None), default=None)
