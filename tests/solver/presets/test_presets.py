"""Every figure of a preset names its source, and stands in a sane relation to the others."""

from __future__ import annotations

import pytest

from bapipe.presets import ALIASES, CLUSTER_SPECS, cluster_from_spec, clusters, device_kinds, links
from bapipe.presets.links import staged_bandwidth
from bapipe.problem import DeviceKind

FIGURES = ("memory_bytes", "reserved_bytes", "peak_flops", "memory_bandwidth_bytes_per_s", "launch_overhead_s")


@pytest.mark.parametrize("kind", device_kinds().values(), ids=lambda kind: kind.name)
def test_every_figure_of_a_device_kind_has_a_source(kind: DeviceKind) -> None:
    blank = DeviceKind(name=kind.name)
    given = {figure for figure in FIGURES if getattr(kind, figure) != getattr(blank, figure)}
    assert given <= kind.sources.keys()
    assert all(source.strip() for source in kind.sources.values())


def test_reference_is_without_limits() -> None:
    reference = device_kinds()["reference"]
    assert reference.memory_bytes is None
    assert reference.launch_overhead_s == 0
    assert not reference.peak_flops
    assert reference.memory_bandwidth_bytes_per_s is None


def test_the_gpus_of_the_catalogue() -> None:
    assert device_kinds().keys() == {"reference", "V100-16G", "A100-40G", "A100-80G", "H100"}
    assert ALIASES["H100-80G"] == "H100"


def test_every_link_has_a_source_and_a_latency() -> None:
    assert links().keys() == {
        "pcie3", "pcie4", "nvlink2", "nvlink3", "nvlink4", "25Gb", "100Gb", "400Gb", "gloo-pcie",
    }  # fmt: skip
    for link in links().values():
        assert link.source
        assert link.bandwidth_bytes_per_s
        assert link.latency_s > 0


def test_ethernet_is_its_line_rate() -> None:
    assert [links()[name].bandwidth_bytes_per_s for name in ("25Gb", "100Gb", "400Gb")] == [3.125e9, 12.5e9, 50e9]


def test_links_of_a_family_grow_faster() -> None:
    for family in (("gloo-pcie", "pcie3", "pcie4"), ("nvlink2", "nvlink3", "nvlink4")):
        speeds = [links()[name].bandwidth_bytes_per_s or 0.0 for name in family]
        assert speeds == sorted(speeds)


def test_gloo_is_two_copies_and_a_send() -> None:
    seconds_per_gb = 1 / 12 + 1 / 2.61 + 1 / 12
    assert staged_bandwidth(12e9, 2.61e9, 12e9) == pytest.approx(1e9 / seconds_per_gb)
    assert links()["gloo-pcie"].bandwidth_bytes_per_s == pytest.approx(1e9 / seconds_per_gb, rel=0.01)


def test_named_clusters_are_their_specs() -> None:
    assert clusters() == {name: cluster_from_spec(spec) for name, spec in CLUSTER_SPECS.items()}
