"""Links that come with BaPipe: bytes a second in each direction, with the source of every figure.

Where a public measurement exists the effective bandwidth is taken; else the nominal one, and `source` says so.
Latencies are those that NCCL's own cost model uses for a ring of its protocol Simple.
"""

from __future__ import annotations

from bapipe.problem import Link

_NCCL = "latency: NCCL, src/graph/tuning.cc, hwLat, {} Ring/Simple {} µs"
_NVLINK_LATENCY_S = 3.4e-6
_PCIE_LATENCY_S = 5.7e-6
_NETWORK_LATENCY_S = 14e-6

_GLOO_HOST_BANDWIDTH = 2.61e9
_PCIE3_BANDWIDTH = 12e9


def _link(bandwidth: float, latency_s: float, source: str) -> Link:
    return Link(bandwidth_bytes_per_s=bandwidth, latency_s=latency_s, source=source)


def _nvlink(bandwidth: float, source: str) -> Link:
    return _link(bandwidth, _NVLINK_LATENCY_S, f"{source}; {_NCCL.format('NVLINK', 3.4)}")


def _pcie(bandwidth: float, source: str) -> Link:
    return _link(bandwidth, _PCIE_LATENCY_S, f"{source}; {_NCCL.format('PCI', 5.7)}")


def ethernet(gigabits: float, standard: str = "Ethernet") -> Link:
    """A network of this nominal rate."""
    source = f"nominal line rate, {gigabits:g} Gb/s, {standard}; {_NCCL.format('NET', 14.0)}"
    return _link(gigabits * 1e9 / 8, _NETWORK_LATENCY_S, source)


def staged_bandwidth(*bandwidths: float) -> float:
    """Bytes a second of a transfer that is copied whole over several hops, one after the other: 1 / Σ 1/b."""
    return 1.0 / sum(1.0 / bandwidth for bandwidth in bandwidths)


QSFP28 = Link(
    bandwidth_bytes_per_s=12.5e9,
    latency_s=1e-6,
    mode="streaming",
    chunks=64,
    source=(
        "nominal: a QSFP28 cage of 4 lanes of 25 Gb/s to each neighbour; VCU118 (UG1224), VCU128 (UG1302), VCU129 "
        "(UG1318), U250 (UG1289) and U280 (UG1314) have two or more. Latency of a serial link of transceivers: "
        "assumption; 64 chunks a tensor: assumption"
    ),
)

LINKS = {
    "pcie3": _pcie(
        _PCIE3_BANDWIDTH,
        "measured: 12 GB/s into a V100 over PCIe 3.0 x16 (nominal 15.75), in ZaidQureshi/bam issue 54",
    ),
    "pcie4": _pcie(
        25e9,
        "measured: 25 GB/s into an A100 over PCIe 4.0 x16 (nominal 31.5), in ZaidQureshi/bam issue 54",
    ),
    "nvlink2": _nvlink(
        47.9e9,
        "measured: p2pBandwidthLatencyTest, 47.9 GB/s one way between two of four V100-SXM2, each pair joined by two "
        "NVLink 2 links (nominal 50), Dell High Performance Computing Solution Resources, table 3 (configuration K)",
    ),
    "nvlink3": _nvlink(
        230e9,
        "measured: 230 GB/s per direction on A100-SXM4 with 12 NVLink 3 links over NVSwitch (nominal 300), NCCL's "
        "author in NVIDIA/nccl-tests issue 149",
    ),
    "nvlink4": _nvlink(
        371e9,
        "measured: p2pBandwidthLatencyTest, 371 to 377 GB/s one way between H100-SXM5 with 18 NVLink 4 links over "
        "NVSwitch (nominal 450), in NVIDIA/nccl issue 1264; the lowest is taken",
    ),
    "25Gb": ethernet(25, "IEEE 802.3by"),
    "100Gb": ethernet(100, "IEEE 802.3ba"),
    "400Gb": ethernet(400, "IEEE 802.3bs"),
    "gloo-pcie": _link(
        round(staged_bandwidth(_PCIE3_BANDWIDTH, _GLOO_HOST_BANDWIDTH, _PCIE3_BANDWIDTH), -7),
        100e-6,
        "Gloo moves a GPU tensor through host memory: copy down, send, copy up, each whole before the next. Host to "
        "host: measured, Gloo's TCP transport, all-reduce of 0.4 GB in 1/6.52 s = 2.61 GB/s, by Gloo's maintainer in "
        "meta-pytorch/torchft pull request 199 (count=1), taken as of two ranks, a number that it does not state; both "
        "copies: preset pcie3. Latency: half of the 200 µs that the same table gives for an all-reduce of 40 bytes, "
        "which goes there and back",
    ),
    "qsfp28": QSFP28,
}
