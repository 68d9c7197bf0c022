import pytest

from bapipe.cost.collectives import gradient_buckets, ring_all_reduce_s, ring_bytes, ring_channels
from bapipe.cost.transfer import Channel
from bapipe.problem import Cluster, Device, DeviceKind, Link, Links, PairLink


def ring(*links):
    """A ring of so many links and no shared card."""
    return [Channel(link, None, (number,)) for number, link in enumerate(links)]


def test_a_ring_passes_each_of_r_parts_on_in_2r_minus_2_rounds():
    link = Link(bandwidth_bytes_per_s=8.0, latency_s=0.25)
    for replicas in range(2, 9):
        expected = 2 * (replicas - 1) / replicas * 1024 / 8 + 2 * (replicas - 1) * 0.25
        assert ring_all_reduce_s(ring(*[link] * replicas), 1024) == pytest.approx(expected, rel=1e-15)


def test_the_slowest_link_of_the_ring_sets_its_pace():
    fast, slow = Link(bandwidth_bytes_per_s=100.0), Link(bandwidth_bytes_per_s=1.0, latency_s=2.0)
    assert ring_all_reduce_s(ring(fast, slow, fast), 30) == 4 * (2.0 + 10.0)


def test_free_links_and_empty_gradients_take_no_time():
    assert ring_all_reduce_s(ring(Link(), Link()), 10) == 0.0
    assert ring_all_reduce_s(ring(*[Link(bandwidth_bytes_per_s=1.0, latency_s=1.0)] * 2), 0) == 0.0


def test_every_link_of_the_ring_carries_twice_the_bytes_less_one_part_each_way():
    assert ring_bytes(4, 1000) == 1500


def test_the_ring_closes_over_the_devices_in_their_order():
    near, far = Link(bandwidth_bytes_per_s=8.0), Link(bandwidth_bytes_per_s=1.0)
    cluster = Cluster(
        kinds=(DeviceKind(name="k"),),
        devices=tuple(Device(id=name, kind="k") for name in "abc"),
        links=Links(within_host=near, pairs=(PairLink(devices=("a", "c"), link=far),)),
    )
    assert [way.link for way in ring_channels(cluster, cluster.devices)] == [near, near, far]
    assert ring_channels(cluster, cluster.devices[:1]) == ()


def test_buckets_fill_from_the_last_layer_and_close_at_the_limit():
    buckets = gradient_buckets([5, 10, 0, 20, 5, 5], 10)
    assert [(bucket.size_bytes, bucket.last_layer) for bucket in buckets] == [(10, 4), (20, 3), (10, 1), (5, 0)]


def test_a_gradient_larger_than_the_limit_is_never_split():
    assert [bucket.size_bytes for bucket in gradient_buckets([1, 1000], 10)] == [1000, 1]


def test_a_last_bucket_is_complete_with_the_last_gradient_that_exists():
    assert [(b.size_bytes, b.last_layer) for b in gradient_buckets([0, 0, 4], 10)] == [(4, 2)]
    assert gradient_buckets([0, 0], 10) == ()


def test_a_card_that_a_host_shares_passes_the_parts_of_a_round_one_after_the_other():
    cluster = Cluster(
        kinds=(DeviceKind(name="k"),),
        devices=tuple(Device(id=name, kind="k", host=name[0]) for name in ("a0", "a1", "b0", "b1")),
        links=Links(within_host=Link(bandwidth_bytes_per_s=64.0), between_hosts=Link(bandwidth_bytes_per_s=8.0)),
        host_nic=Link(bandwidth_bytes_per_s=4.0),
    )
    # two of the four hops leave a host, each over both cards: 2 · 8 bytes / 4 bytes per second a round
    assert ring_all_reduce_s(ring_channels(cluster, cluster.devices), 32) == 2 * 3 * (2 * 8 / 4)
