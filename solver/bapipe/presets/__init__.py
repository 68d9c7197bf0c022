"""Devices, links and clusters that come with BaPipe; every figure names its source."""

from __future__ import annotations

from bapipe.presets.devices import ALIASES, DEVICE_KINDS
from bapipe.presets.links import LINKS
from bapipe.presets.spec import cluster_from_spec
from bapipe.problem import Cluster, DeviceKind, Link

__all__ = ["ALIASES", "CLUSTER_SPECS", "cluster_from_spec", "clusters", "device_kinds", "links"]

CLUSTER_SPECS = {
    "4xV100-pcie3": "4xV100-16G:pcie3",
    "8xV100-nvlink2": "8xV100-16G:nvlink2",
    "4xV100-gloo": "4xV100-16G:gloo-pcie",
    "2x4xA100-100Gb": "2x(4xA100-40G:nvlink3):100Gb",
    "2x8xH100-400Gb": "2x(8xH100:nvlink4):400Gb",
}
"""Clusters by name, each as its one-line spec."""


def device_kinds() -> dict[str, DeviceKind]:
    """Device kinds by name; `ALIASES` holds other names for them."""
    return dict(DEVICE_KINDS)


def links() -> dict[str, Link]:
    """Links by name."""
    return dict(LINKS)


def clusters() -> dict[str, Cluster]:
    """Example clusters by name."""
    return {name: cluster_from_spec(spec) for name, spec in CLUSTER_SPECS.items()}
