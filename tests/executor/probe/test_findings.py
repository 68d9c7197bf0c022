"""What a probe finds becomes a cluster with a link for every pair."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from bapipe_executor.probe.findings import Findings
from bapipe_executor.probe.workers import Worker

GIB = 2**30
WORKERS = [Worker("a", "cpu", 8 * GIB, "cpu"), Worker("a", "cpu", 8 * GIB, "cpu"), Worker("b", "cpu", 6 * GIB, "cpu")]


def points(latency_s: float, bandwidth: float) -> list[tuple[int, float]]:
    return [(size, latency_s + size / bandwidth) for size in (1 << 10, 1 << 16, 1 << 20, 1 << 24)]


def findings(contended_bandwidth: float = 1e9) -> Findings:
    pairs = {(0, 1): (1e-5, 4e9), (0, 2): (1e-4, 1e9), (1, 2): (1e-4, 1e9)}
    return Findings(
        workers=WORKERS,
        alone={pair: points(*link) for pair, link in pairs.items()},
        together={pair: points(link[0], contended_bandwidth) for pair, link in pairs.items()},
        pair_reductions={pair: points(2 * link[0], link[1]) for pair, link in pairs.items()},
        reductions=points(4e-4, 0.75e9),
    )


def test_the_cluster_has_the_ranks_in_order_and_a_link_for_every_pair() -> None:
    cluster = findings().cluster(contended=False)

    assert [(device.id, device.host) for device in cluster.devices] == [
        ("a/cpu0", "a"),
        ("a/cpu1", "a"),
        ("b/cpu0", "b"),
    ]
    assert [pair.devices for pair in cluster.links.pairs] == [
        ("a/cpu0", "a/cpu1"),
        ("a/cpu0", "b/cpu0"),
        ("a/cpu1", "b/cpu0"),
    ]
    assert cluster.links.pairs[0].link.bandwidth_bytes_per_s == pytest.approx(4e9)
    assert cluster.links.pairs[1].link.latency_s == pytest.approx(1e-4)
    assert cluster.kinds[0].memory_bytes == 4 * GIB  # two ranks share a host of 8 GiB


def test_contended_links_are_those_of_all_pairs_talking() -> None:
    cluster = findings().cluster(contended=True)

    assert cluster.links.pairs[0].link.bandwidth_bytes_per_s == pytest.approx(1e9)
    assert "while all other pairs talk" in cluster.links.pairs[0].link.source


def test_the_report_says_when_links_share_something() -> None:
    assert findings(contended_bandwidth=1e9).report()["warnings"] == []
    assert "share something" in findings(contended_bandwidth=0.3e9).report()["warnings"][0]


def test_a_ring_over_the_links_is_set_beside_the_measured_all_reduce() -> None:
    row = findings().report()["all_reduce"][-1]

    assert row["predicted_s"] == pytest.approx(4 * (1e-4 + (1 << 24) / 3 / 1e9))
    assert row["measured_s"] == pytest.approx(4e-4 + (1 << 24) / 0.75e9)


def test_a_preset_keeps_its_figures() -> None:
    worker = Worker("a", "H100", 85 * 10**9, "cuda")
    one = findings()

    made = Findings([worker, worker, worker], one.alone, one.together, one.pair_reductions, one.reductions)

    kind = made.cluster(contended=False).kinds[0]
    assert kind.name == "H100"
    assert kind.peak_flops
