"""Every figure of a preset names its source, and stands in a sane relation to the others."""

from __future__ import annotations

import pytest

from bapipe.planner import plan
from bapipe.presets import ALIASES, CLUSTER_SPECS, cluster_from_spec, clusters, device_kinds, links
from bapipe.presets.links import staged_bandwidth
from bapipe.problem import DeviceKind, Layer, LayerTime, ModelProfile, PlanRequest

FIGURES = ("memory_bytes", "reserved_bytes", "peak_flops", "memory_bandwidth_bytes_per_s", "launch_overhead_s")
FPGAS = ("VCU118", "VCU128", "VCU129", "U250", "U280")


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


def test_the_devices_of_the_catalogue() -> None:
    assert device_kinds().keys() == {"reference", "cpu", "V100-16G", "A100-40G", "A100-80G", "H100", *FPGAS}
    assert ALIASES["H100-80G"] == "H100"
    assert [name for name, kind in device_kinds().items() if kind.fpga is not None] == list(FPGAS)


@pytest.mark.parametrize("name", FPGAS)
def test_an_fpga_is_limited_by_the_memory_beside_its_chip(name: str) -> None:
    kind = device_kinds()[name]
    assert kind.fpga is not None
    assert kind.memory_bytes == kind.fpga.off_chip_bytes
    assert kind.memory_bandwidth_bytes_per_s == kind.fpga.off_chip_bandwidth_bytes_per_s
    assert kind.fpga.on_chip_bytes < kind.fpga.off_chip_bytes
    assert kind.peak_flops["int8"] == kind.fpga.dsp_slices * kind.fpga.clock_hz * 3.5
    assert "execution" in kind.sources


@pytest.mark.parametrize("name", FPGAS)
def test_every_figure_of_a_board_has_a_source_its_defaults_too(name: str) -> None:
    kind = device_kinds()[name]
    assert kind.fpga is not None
    figures = {f"fpga.{figure}" for figure in type(kind.fpga).model_fields if figure != "energy"}
    figures |= {f"fpga.energy.{figure}" for figure in type(kind.fpga.energy).model_fields}
    figures |= {"execution", *FIGURES}
    assert figures <= kind.sources.keys()


def test_on_chip_memory_is_what_the_data_sheets_say_in_megabits() -> None:
    """Block RAM and UltraRAM: 75.9 and 270 Mb on a VU9P, 70.9 and 270 Mb on a VU37P, 94.5 and 360 Mb on a VU13P."""
    sizes = {name: kind.fpga.on_chip_bytes * 8 / 2**20 for name in FPGAS if (kind := device_kinds()[name]).fpga}
    small, large = pytest.approx(70.9 + 270, abs=0.05), pytest.approx(94.5 + 360, abs=0.05)
    assert sizes.pop("VCU118") == pytest.approx(75.9 + 270, abs=0.05)
    assert sizes == {"VCU128": small, "U280": small, "VCU129": large, "U250": large}


def test_memory_in_the_package_is_460_gb_a_second_and_beside_it_77() -> None:
    """Both figures as AMD rounds them, UG1393."""
    rates = {name: device_kinds()[name].memory_bandwidth_bytes_per_s for name in FPGAS}
    assert [rates[name] for name in ("VCU128", "U280", "U250")] == pytest.approx([460e9, 460e9, 77e9], rel=3e-3)


def test_fpgas_can_be_planned_for() -> None:
    cluster = cluster_from_spec("1xVCU118+1xVCU118:100Gb")
    assert [device.id for device in cluster.devices] == ["host0/fpga0", "host0/fpga1"]
    time = LayerTime(device_kind="VCU118", microbatch_size=1, forward_s=1.0, backward_s=2.0)
    layers = [Layer(id=name, times=(time,), output_bytes_per_sample=1e6, parameter_bytes=4) for name in "ab"]
    profile = ModelProfile(name="two", layers=tuple(layers))
    found = plan(PlanRequest(profile=profile, cluster=cluster, batch_size=4))
    assert found.status == "optimal"
    assert {stage.memory_limit_bytes for stage in found.stages} == {4 * 2**30}


def test_every_link_has_a_source_and_a_latency() -> None:
    assert links().keys() == {
        "pcie3", "pcie4", "nvlink2", "nvlink3", "nvlink4", "25Gb", "100Gb", "400Gb", "gloo-pcie", "qsfp28",
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
