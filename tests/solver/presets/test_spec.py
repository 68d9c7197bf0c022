"""One-line cluster specs: what they mean, and what each way of getting them wrong says."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bapipe.errors import InvalidInputError
from bapipe.presets import cluster_from_spec, links
from bapipe.presets.spec import BANDWIDTH_UNITS


def faults(spec: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInputError) as caught:
        cluster_from_spec(spec)
    return [(fault.code, fault.detail) for fault in caught.value.faults]


def test_devices_of_one_host() -> None:
    cluster = cluster_from_spec("4xV100-16G:pcie3")
    assert [device.id for device in cluster.devices] == [f"host0/gpu{place}" for place in range(4)]
    assert {device.kind for device in cluster.devices} == {"V100-16G"}
    assert cluster.links.within_host == links()["pcie3"]
    assert cluster.links.between_hosts is None


def test_reference_devices_without_a_link_have_free_transfers() -> None:
    assert cluster_from_spec("8xreference").links.within_host.bandwidth_bytes_per_s is None


def test_one_device_needs_no_link() -> None:
    assert len(cluster_from_spec("1xH100").devices) == 1


def test_hosts_and_what_joins_them() -> None:
    cluster = cluster_from_spec("2x(4xA100-40G:nvlink3):100Gb")
    assert [device.id for device in cluster.devices][3:5] == ["host0/gpu3", "host1/gpu0"]
    assert cluster.links.within_host == links()["nvlink3"]
    assert cluster.links.between_hosts == links()["100Gb"]
    assert {device.rack for device in cluster.devices} == {"rack0"}


def test_racks_of_hosts() -> None:
    cluster = cluster_from_spec("2x(3x(2xH100:nvlink4):400Gb):25Gb")
    assert [(device.rack, device.host) for device in cluster.devices][::2] == [
        ("rack0", "host0"), ("rack0", "host1"), ("rack0", "host2"),
        ("rack1", "host3"), ("rack1", "host4"), ("rack1", "host5"),
    ]  # fmt: skip
    assert cluster.links.between_racks == links()["25Gb"]


def test_mixed_kinds_in_one_host_keep_their_order() -> None:
    cluster = cluster_from_spec("2xV100-16G+1xH100-80G:pcie3")
    assert [device.kind for device in cluster.devices] == ["V100-16G", "V100-16G", "H100"]
    assert [kind.name for kind in cluster.kinds] == ["V100-16G", "H100"]


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("10GB/s", 10e9),
        ("10 GB/s", 10e9),
        ("1.5e3MB/s", 1.5e9),
        ("7B/s", 7.0),
        ("7kB/s", 7e3),
        ("2GiB/s", 2 * 2**30),
        ("100Gb/s", 12.5e9),
        ("100Gbit/s", 12.5e9),
    ],
)
def test_bandwidth_units(text: str, bytes_per_s: float) -> None:
    assert cluster_from_spec(f"2xreference:{text}").links.within_host.bandwidth_bytes_per_s == bytes_per_s


def test_a_bare_ethernet_name_is_its_bandwidth() -> None:
    named = cluster_from_spec("2xreference:100Gb").links.within_host
    given_rate = cluster_from_spec("2xreference:100Gb/s").links.within_host
    assert named.bandwidth_bytes_per_s == given_rate.bandwidth_bytes_per_s
    assert given_rate.latency_s == 0


@pytest.mark.parametrize(("text", "gigabits"), [("10Gb", 10), ("25Gb", 25), ("2.5Gb", 2.5), ("200 Gb", 200)])
def test_ethernet_of_any_rate(text: str, gigabits: float) -> None:
    link = cluster_from_spec(f"2xreference:{text}").links.within_host
    assert link.bandwidth_bytes_per_s == gigabits * 1e9 / 8
    assert link.latency_s == links()["100Gb"].latency_s
    assert "nominal line rate" in link.source


def test_options_of_a_link() -> None:
    link = cluster_from_spec("2xreference:10GB/s, latency=5us, mode=blocking").links.within_host
    assert link.latency_s == pytest.approx(5e-6)
    assert link.mode == "blocking"


def test_a_streaming_link_makes_fpgas_asynchronous() -> None:
    cluster = cluster_from_spec("2xVCU118+1xV100-16G:100Gb,mode=streaming,chunks=16")
    assert cluster.links.within_host.chunks == 16
    assert {kind.name: kind.execution for kind in cluster.kinds} == {"VCU118": "async", "V100-16G": "sync"}
    assert cluster_from_spec("2xVCU118:100Gb").kinds[0].execution == "sync"
    assert cluster_from_spec("2xU280:qsfp28").kinds[0].execution == "async"
    ordered = cluster_from_spec("2xreference:1GB/s,mode=blocking,exchange=ordered").links.within_host
    assert (ordered.mode, ordered.exchange) == ("blocking", "ordered")


@pytest.mark.parametrize(
    ("spec", "code", "says"),
    [
        ("", "bad_spec", "empty"),
        ("4x", "bad_spec", "a device kind follows"),
        ("V100-16G:pcie3", "bad_spec", "a count and an x come first"),
        ("4xV10-16G:pcie3", "dangling_reference", "did you mean 'V100-16G'"),
        ("4xV100:pcie3", "dangling_reference", "did you mean 'V100-16G'"),
        ("4xv100-16g:pcie3", "dangling_reference", "did you mean 'V100-16G'"),
        ("4xa100:pcie3", "dangling_reference", "did you mean 'A100-40G'"),
        ("4xphone:pcie3", "dangling_reference", "known: reference"),
        ("4xV100-16G:NVLink2", "dangling_reference", "did you mean 'nvlink2'"),
        ("4xV100-16G:0Gb", "unknown_unit", "did you mean 'Gb/s'"),
        ("4xV100-16G:10Gbps", "unknown_unit", "did you mean 'Gb/s'"),
        ("4xV100-16G:pcie33", "dangling_reference", "did you mean 'pcie3'"),
        ("4xV100-16G:", "dangling_reference", "known: pcie3"),
        ("4xV100-16G", "missing_link", "4xV100-16G:pcie3"),
        ("2x(4xA100-40G:nvlink3)", "missing_link", "at character 1"),
        ("0xreference", "too_small", "at least 1, not 0"),
        ("-3xreference", "too_small", "not -3"),
        ("2.5xreference", "wrong_type", "whole number"),
        ("1e99xreference", "too_large", "at most 4096"),
        ("3000x(2xreference)", "too_large", "6000 devices"),
        ("4xreference:0GB/s", "too_small", "above 0"),
        ("4xreference:-1GB/s", "too_small", "above 0"),
        ("4xreference:nanGB/s", "not_finite", "finite"),
        ("4xreference:infGB/s", "not_finite", "finite"),
        ("4xreference:1e30GB/s", "too_large", "beyond"),
        ("4xreference:10GB", "unknown_unit", "did you mean 'GB/s'"),
        ("4xreference:10", "unknown_unit", "known: B/s"),
        ("4xreference:10GB/s,latency=-1us", "too_small", "at least 0"),
        ("4xreference:10GB/s,latency=1parsec", "unknown_unit", "known: s"),
        ("4xreference:10GB/s,mode=fast", "bad_spec", "blocking"),
        ("4xreference:10GB/s,exchange=both", "bad_spec", "fused|ordered"),
        ("4xreference:10GB/s,chunks=0", "bad_spec", "chunks=16"),
        ("4xreference:10GB/s,chunks=9999999999", "bad_spec", "at most 1000000"),
        ("4xreference:10GB/s,chunks=x", "bad_spec", "chunks=16"),
        ("2x(2x(2x(2xreference)))", "bad_spec", "nested too deeply"),
        ("2x(4xreference", "bad_spec", "parentheses"),
        ("2x4xreference)", "bad_spec", "parentheses"),
        ("2x(1xreference)(1xreference)", "bad_spec", "parentheses"),
    ],
)
def test_what_a_bad_spec_says(spec: str, code: str, says: str) -> None:
    found = faults(spec)
    assert any(code == each and says in detail for each, detail in found), found


def test_all_faults_at_once_in_the_order_of_the_spec() -> None:
    codes = [code for code, _ in faults("-1x(0xV10-16G:nvlnk4):-10GB/s")]
    assert codes == ["too_small", "too_small", "dangling_reference", "dangling_reference", "too_small"]


@given(st.text(max_size=40) | st.text("0123456789xX()+:,=-. VA100GHhbB/sgreference", max_size=40))
def test_no_text_raises_anything_else(spec: str) -> None:
    with contextlib.suppress(InvalidInputError):
        assert cluster_from_spec(spec).devices


@given(st.integers(1, 12), st.integers(1, 4), st.floats(1e-3, 1e3), st.sampled_from(sorted(BANDWIDTH_UNITS)))
def test_well_formed_specs_are_read(devices: int, hosts: int, rate: float, unit: str) -> None:
    cluster = cluster_from_spec(f"{hosts}x({devices}xreference:{rate!r}{unit}):25Gb")
    assert len(cluster.devices) == devices * hosts
    assert cluster.links.within_host.bandwidth_bytes_per_s == rate * BANDWIDTH_UNITS[unit]
