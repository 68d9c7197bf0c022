"""Thousands of devices, and full matrices of links: read once, not once for each of the numbers of devices tried."""

from __future__ import annotations

from random import Random

import pytest

from bapipe import link_modes
from bapipe.candidates import allowed_schedules, candidates
from bapipe.cost.transfer import link_between
from bapipe.link_modes import pipelines_by_count, pipelines_on
from bapipe.problem import Cluster, Device, DeviceKind, Link, Links, PairLink, PlanRequest
from judges.instances import cluster, layer, request

MODES = ("blocking", "overlapped", "streaming")


def mixed(seed: int) -> PlanRequest:
    """Devices of both kinds of execution behind links of any mode, some with a pair's own."""
    random = Random(seed)
    count = random.randint(1, 7)
    likely = random.choice(MODES)

    def link() -> Link:
        return Link(mode=random.choice(MODES) if random.random() < 0.2 else likely)  # type: ignore[arg-type]

    execution = ("async", "async" if random.random() < 0.6 else "sync")
    pairs = [(a, b) for a in range(count) for b in range(a) if random.random() < 0.3]
    devices = Cluster(
        kinds=tuple(
            DeviceKind(name=name, execution=how) for name, how in zip(("reference", "b"), execution, strict=True)
        ),
        devices=tuple(Device(id=f"d{k}", kind=random.choice(("reference", "b"))) for k in range(count)),
        links=Links(
            within_host=link(), pairs=tuple(PairLink(devices=(f"d{a}", f"d{b}"), link=link()) for a, b in pairs)
        ),
    )
    return request([layer("a")], devices, 2, task=random.choice(("training", "inference")))


def test_one_pass_over_the_links_allows_for_every_number_of_devices_what_its_own_pass_does() -> None:
    found = set()
    for seed in range(300):
        asked = mixed(seed)
        counts = range(1, len(asked.cluster.devices) + 1)
        assert pipelines_by_count(asked) == tuple(pipelines_on(asked, count) for count in counts)
        found.update(pipelines_by_count(asked))
    assert len(found) == 3


def test_the_links_of_a_cluster_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real = link_modes.mode_between

    def counted(*ends: object) -> str:
        nonlocal looks
        looks += 1
        return real(*ends)  # type: ignore[arg-type]

    monkeypatch.setattr(link_modes, "mode_between", counted)
    asked = request([layer("a")], cluster(500), 64)
    assert len(candidates(asked)) > 100
    assert looks <= 500
    allowed_schedules(asked)
    assert looks <= 1000


def test_the_link_of_a_pair_is_that_of_its_own_cluster() -> None:
    base = cluster(3, Link(latency_s=9.0))
    a, b, c = base.devices
    for seconds in range(12):
        own = (PairLink(devices=("d1", "d0"), link=Link(latency_s=float(seconds))),)
        joined = base.model_copy(update={"links": base.links.model_copy(update={"pairs": own})})
        assert link_between(joined, a, b).latency_s == link_between(joined, b, a).latency_s == seconds
        assert link_between(joined, b, c).latency_s == 9.0
