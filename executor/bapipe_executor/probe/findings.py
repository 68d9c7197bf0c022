"""What a probe found, as a cluster to plan for and as a report to read."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bapipe.cost.collectives import ring_all_reduce_s, ring_channels
from bapipe.problem import Cluster, Device, Link, Links, PairLink
from bapipe_executor.probe.fit import LinkFit, Point, fit_link
from bapipe_executor.probe.measurement import Times
from bapipe_executor.probe.rounds import Pair
from bapipe_executor.probe.workers import Worker, device_ids, kinds_of

SHARED = 1.25
"""By how much a transfer is slower when all pairs talk from where on links are said to share something."""

ROUGH_FIT = 0.3
"""A relative error of a fit at one size that is worth a warning."""


@dataclass(frozen=True)
class Findings:
    """Seconds by size of transfers and all-reduces: of each pair alone, of pairs at once, and of all ranks together."""

    workers: Sequence[Worker]
    alone: Times
    together: Times
    pair_reductions: Times
    reductions: Sequence[Point]

    def cluster(self, *, contended: bool) -> Cluster:
        """The ranks with the link of every pair, as it is alone, or as it is while all other pairs talk."""
        ids = device_ids(self.workers)
        fits = {pair: fit_link(points) for pair, points in (self.together if contended else self.alone).items()}
        return Cluster(
            name="probed",
            kinds=kinds_of(self.workers),
            devices=tuple(
                Device(id=name, kind=worker.kind, host=worker.host)
                for name, worker in zip(ids, self.workers, strict=True)
            ),
            links=Links(pairs=tuple(_pair_link(ids, pair, fit, contended) for pair, fit in sorted(fits.items()))),
        )

    def report(self) -> dict[str, Any]:
        """Every fit, the all-reduce of all ranks beside what the links make of it, and warnings, as plain JSON."""
        ids = device_ids(self.workers)
        cluster = self.cluster(contended=False)
        ring = ring_channels(cluster, cluster.devices)
        return {
            "pairs": [
                {
                    "devices": [ids[pair[0]], ids[pair[1]]],
                    "alone": asdict(fit_link(self.alone[pair])),
                    "together": asdict(fit_link(self.together[pair])),
                    "all_reduce": asdict(fit_link(self.pair_reductions[pair])),
                    "points": {"alone": self.alone[pair], "together": self.together[pair]},
                }
                for pair in sorted(self.alone)
            ],
            "all_reduce": [
                {"bytes": size, "measured_s": seconds, "predicted_s": ring_all_reduce_s(ring, size)}
                for size, seconds in self.reductions
            ],
            "warnings": list(self._warnings()),
        }

    def _warnings(self) -> Iterator[str]:
        ratio = statistics.median(
            _at_largest(self.together[pair]) / _at_largest(self.alone[pair]) for pair in self.alone
        )
        if ratio > SHARED:
            yield (
                f"links share something: the largest transfers take {ratio:.2g} times as long when all pairs talk "
                "at once; --contended writes the links as they are then"
            )
        rough = [pair for pair, points in self.alone.items() if fit_link(points).worst_error > ROUGH_FIT]
        if rough:
            yield (
                f"{len(rough)} of {len(self.alone)} links take a time at some size that latency and bandwidth miss by "
                f"more than {ROUGH_FIT:.0%}: look at the sizes that matter in --report"
            )


def _pair_link(ids: Sequence[str], pair: Pair, fit: LinkFit, contended: bool) -> PairLink:
    how = "while all other pairs talk" if contended else "alone"
    source = f"bapipe probe, {how}: median error {fit.median_error:.1%}, worst {fit.worst_error:.1%}"
    link = Link(bandwidth_bytes_per_s=fit.bandwidth_bytes_per_s, latency_s=fit.latency_s, source=source)
    return PairLink(devices=(ids[pair[0]], ids[pair[1]]), link=link)


def _at_largest(points: Sequence[Point]) -> float:
    return max(points)[1]
