"""The replay part by part: equal to the simulator where the models coincide, closed forms of FIFOs, and monotone."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.errors import InvalidInputError
from bapipe.lowering import Operation
from bapipe.plan import Plan
from bapipe.problem import Cluster, Device, DeviceKind, Edge, Link, Links
from bapipe.simulator.event_simulation import Prepared, prepare
from bapipe.simulator.events import Job, replay_events
from bapipe.simulator.flow import Flow, Flowed, replay_flow
from judges.instances import bare_plan, layer, make_plan, request
from judges.parts import Parts, is_settled
from judges.plans import random_plan

EXACT = 1e-9


def prepared(plan: Plan) -> Prepared:
    assert plan.schedule is not None
    return prepare(plan, plan.schedule)


def parts_of(job: Job) -> dict[Operation, int]:
    parts: dict[Operation, int] = {}
    for message, price in zip(job.lowered.messages, job.prices, strict=True):
        for operation in (message.made_by, message.read_by):
            parts[operation] = max(parts.get(operation, 1), price.chunks)
    return parts


def step_s(flowed: Flowed) -> float:
    return max(flowed.replayed.optimizer_end_s)


def chain(n: int, m: int, chunks: int, forward_s: Any = 1.0, backward_s=2.0, send_s=0.0, **fields: Any):
    """`n` asynchronous devices in a row; forward seconds of each, or of all alike."""
    forwards = forward_s if isinstance(forward_s, tuple) else (forward_s,) * n
    layers = [
        layer(f"l{k}", each, backward_s, output_bytes_per_sample=8.0, streamable=True)
        for k, each in enumerate(forwards)
    ]
    link = Link(bandwidth_bytes_per_s=8.0 / send_s if send_s else None, mode="streaming", chunks=chunks)
    cluster = Cluster(
        kinds=(DeviceKind(name="reference", execution="async"),),
        devices=tuple(Device(id=f"d{k}", kind="reference") for k in range(n)),
        links=Links(within_host=link),
    )
    asked = request(layers, cluster, m, **fields)
    return asked, [[f"l{k}"] for k in range(n)]


def flowed_chain(n: int, m: int, chunks: int, *, share: float | None = None, depth: int | None = None, **options: Any):
    asked, stages = chain(n, m, chunks, **options)
    plan = make_plan(asked, stages, "1f1b", m)
    ready = prepared(plan if share is None else split(plan, share))
    ways = {price.resources[0] for price in ready.job.prices if price.resources}
    depths = {} if depth is None else dict.fromkeys(ways, depth)
    return replay_flow(ready.job, Flow(parts_of(ready.job), depths))


def split(plan: Plan, share: float) -> Plan:
    """The plan with a forward and a backward engine on every device."""
    assert plan.schedule is not None
    n, m = len(plan.stages), plan.schedule.num_microbatches
    orders = tuple(_forward_backward(n, m, k) for k in range(n))
    schedule = plan.schedule.model_copy(update={"name": "custom", "orders": orders})
    stages = tuple(stage.model_copy(update={"forward_share": share}) for stage in plan.stages)
    return plan.model_copy(update={"stages": stages, "schedule": schedule})


def _forward_backward(n: int, m: int, stage: int) -> tuple[str, ...]:
    """2(N - i) forwards ahead, then backward and forward side by side."""
    ahead = min(m, 2 * (n - stage))
    order = [f"{stage}F{k}" for k in range(ahead)]
    for k in range(m):
        order.append(f"{stage}B{k}")
        if ahead + k < m:
            order.append(f"{stage}F{ahead + k}")
    return tuple(order)


@pytest.mark.parametrize("seed", range(120))
def test_in_one_part_it_is_the_replay_by_events(seed: int) -> None:
    """Every kind of plan but those that stream in chunks, where readers may start earlier part by part."""
    plan, _ = random_plan(seed)
    try:
        ready = prepared(plan)
        expected = replay_events(ready.job)
    except InvalidInputError:
        return
    if any(price.chunks > 1 for price in ready.job.prices):
        return
    found = replay_flow(ready.job, Flow({}))
    assert found.finished
    assert found.replayed.starts_s.keys() == expected.starts_s.keys()
    for operation, start_s in expected.starts_s.items():
        assert found.replayed.starts_s[operation] == pytest.approx(start_s, rel=EXACT, abs=EXACT)
        assert found.replayed.ends_s[operation] == pytest.approx(expected.ends_s[operation], rel=EXACT, abs=EXACT)
    assert found.replayed.optimizer_end_s == pytest.approx(expected.optimizer_end_s, rel=EXACT)
    assert found.replayed.sent_s.keys() == expected.sent_s.keys()


@pytest.mark.parametrize("seed", range(200))
def test_every_end_is_the_longest_way_through_what_awaits_what(seed: int) -> None:
    """Chunks, FIFOs, losses and split devices against a judge without clock or events."""
    draw = random.Random(seed)
    job = _streaming_job(draw) if seed % 2 else _any_job(seed)
    if job is None or not is_settled(job):
        return
    parts = {operation: draw.choice([count, 2 * count, count + 1]) for operation, count in parts_of(job).items()}
    ways = {price.resources[0] for price in job.prices if price.resources}
    depths = {way: draw.randint(2, 6) for way in sorted(ways)} if draw.random() < 0.7 else {}
    tries = (lambda message, chunk: 1) if draw.random() < 0.6 else (lambda message, chunk: 1 + (message + chunk) % 3)
    found = replay_flow(job, Flow(parts, depths, tries)).replayed.ends_s
    assert found == pytest.approx(Parts(job, parts, depths, tries).ends(), rel=EXACT)


def _streaming_job(draw: random.Random) -> Job:
    n, m = draw.randint(1, 5), draw.randint(1, 8)
    forward_s = tuple(draw.choice([0.5, 1.0, 2.0, 3.0]) for _ in range(n))
    times = {"backward_s": draw.choice([0.3, 1.0, 2.0]), "send_s": draw.choice([0.0, 0.3, 1.0, 4.0])}
    asked, stages = chain(n, m, draw.choice([1, 2, 3, 4, 8]), forward_s=forward_s, **times)
    plan = make_plan(asked, stages, draw.choice(["1f1b", "gpipe"]), m)
    share = draw.choice([None, None, 0.5, 0.3])
    return prepared(plan if share is None else split(plan, share)).job


def _any_job(seed: int) -> Job | None:
    plan, _ = random_plan(seed // 2)
    try:
        return replace(prepared(plan).job, buckets=())
    except InvalidInputError:
        return None


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_1f1b_as_has_its_closed_form(chunks: int) -> None:
    for n in range(1, 6):
        for m in (1, 3, 8):
            expected = m * 3.0 + (n - 1) * 3.0 / chunks
            assert step_s(flowed_chain(n, m, chunks)) == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize("chunks", [2, 4])
def test_fbp_as_has_its_closed_form(chunks: int) -> None:
    """F and B side by side, each taking T = 2 on half a device."""
    for n in range(1, 6):
        for m in (1, 3, 8):
            found = step_s(flowed_chain(n, m, chunks, share=0.5, forward_s=1.0, backward_s=1.0))
            assert found == pytest.approx((m + 1) * 2.0 + 2 * (n - 1) * 2.0 / chunks, rel=EXACT)


@pytest.mark.parametrize("chunks", [1, 3, 4])
@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (3.0, 1.0, 2.0), (1.0, 3.0, 2.0), (1.0, 2.0, 3.0)])
def test_two_devices_with_a_fifo_have_their_closed_form(chunks: int, times: tuple[float, float, float]) -> None:
    """n = M·g chunks of d, c and e seconds each on device, link and device. A FIFO of one chunk lets the first device
    go on only when its last chunk has left: d + c + e + (n-1)·max(d + c, e); of two or more, which overlap making and
    sending: d + c + e + (n-1)·max(d, c, e).
    """
    made, sent, read = times
    for m in (1, 2, 5):
        d, c, e = (each / chunks for each in times)
        for depth, slowest in ((1, max(d + c, e)), (2, max(d, c, e)), (7, max(d, c, e))):
            options: dict[str, Any] = {"forward_s": (made, read), "send_s": sent, "task": "inference"}
            found = flowed_chain(2, m, chunks, depth=depth, **options)
            assert step_s(found) == pytest.approx(d + c + e + (m * chunks - 1) * slowest, rel=EXACT)


def test_a_slow_link_stops_the_device_in_front_of_its_fifo() -> None:
    """Forwards of 1 s, transfers of 3 s in 4 chunks: the FIFO holds 2, so that a forward takes as long as 2 chunks less
    than its transfer; without limit the device is done after 1 s.
    """
    bound = flowed_chain(2, 1, 4, depth=2, forward_s=1.0, send_s=3.0, task="inference")
    free = flowed_chain(2, 1, 4, forward_s=1.0, send_s=3.0, task="inference")
    first = Operation(0, "F", 0)
    assert free.replayed.ends_s[first] == 1.0
    assert bound.replayed.ends_s[first] == pytest.approx(0.25 + 2 * 0.75 + 0.25)
    assert step_s(bound) == step_s(free) == pytest.approx(0.25 + 3.0 + 0.25)


def test_no_fifo_ever_holds_more_than_it_can() -> None:
    for depth in (1, 2, 3):
        found = flowed_chain(4, 6, 3, depth=depth, send_s=0.7)
        for way, made in found.made_s.items():
            left = found.left_s[way]
            assert len(made) == len(left)
            assert all(left[k] >= made[k] for k in range(len(made)))
            assert all(made[k] >= left[k - depth] for k in range(depth, len(made)))


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_a_ring_all_reduce_has_its_closed_form(replicas: int) -> None:
    """2(r-1)/r of the bytes over each link, after the backwards."""
    link = Link(bandwidth_bytes_per_s=4.0)
    cluster = Cluster(
        kinds=(DeviceKind(name="reference", execution="async"),),
        devices=tuple(Device(id=f"d{k}", kind="reference") for k in range(replicas)),
        links=Links(within_host=link),
    )
    asked = request([layer("a", parameter_bytes=24, streamable=True)], cluster, replicas)
    plan = make_plan(asked, [["a"]], "data-parallel", replicas, all_reduce="blocking")
    ready = prepared(plan)
    assert step_s(replay_flow(ready.job, Flow({}))) == pytest.approx(3.0 + 2 * (replicas - 1) / replicas * 24 / 4)


def test_engines_that_share_a_memory_port_take_turns() -> None:
    """Forward 1 and backward 0 run side by side; each needs the port for 0.6 of its 1 s, the older first."""
    asked, stages = chain(1, 2, 1, forward_s=0.5, backward_s=0.5)
    plan = bare_plan(asked, stages, [["d0"]], make_plan(asked, stages, "1f1b", 2).schedule)
    assert plan.schedule is not None
    orders = (("0F0", "0F1", "0B0", "0B1"),)
    split = plan.model_copy(
        update={
            "stages": (plan.stages[0].model_copy(update={"forward_share": 0.5}),),
            "schedule": plan.schedule.model_copy(update={"name": "custom", "orders": orders}),
        }
    )
    job = prepared(split).job
    operations = [Operation(0, kind, k) for kind in "FB" for k in (0, 1)]
    busy = replace(job, port_s=dict.fromkeys(operations, 0.6))
    found = replay_flow(busy, Flow({})).replayed
    assert replay_events(busy).ends_s == pytest.approx(found.ends_s)
    assert [found.ends_s[o] for o in operations] == pytest.approx([1.0, 2.2, 2.0, 3.2])
    alone = replay_flow(job, Flow({})).replayed
    assert [alone.ends_s[o] for o in operations] == pytest.approx([1.0, 2.0, 2.0, 3.0])


def test_a_lost_chunk_is_sent_again() -> None:
    asked, stages = chain(2, 1, 2, send_s=1.0, task="inference")
    job = prepared(make_plan(asked, stages, "1f1b", 1)).job
    found = replay_flow(job, Flow(parts_of(job), tries=lambda message, chunk: 3 if chunk == 0 else 1))
    way = ("link", "d0", "d1")
    assert found.left_s[way] == pytest.approx([0.5 + 1.5, 2.0 + 0.5])
    assert found.resent_bytes[way] == 2 * 4.0
    assert found.sent_bytes[way] == found.received_bytes[way] == 8.0


def test_a_board_that_dies_ends_nothing_more() -> None:
    asked, stages = chain(2, 4, 1)
    job = prepared(make_plan(asked, stages, "1f1b", 4)).job
    found = replay_flow(job, Flow({}, dies_s={1: 4.5}))
    assert not found.finished
    assert max(end for o, end in found.replayed.ends_s.items() if o.stage == 1) <= 4.5
    assert Operation(1, "B", 0) in found.replayed.ends_s
    assert Operation(1, "B", 1) not in found.replayed.ends_s


def test_two_tensors_of_one_part_need_room_for_both() -> None:
    """A stage that feeds two stages of the next device: the FIFO never holds more than it can."""
    layers = [layer(name, 1.0, 2.0, output_bytes_per_sample=4.0, streamable=True) for name in "abc"]
    edges = [Edge(source="a", target="b"), Edge(source="a", target="c"), Edge(source="b", target="c")]
    cluster = Cluster(
        kinds=(DeviceKind(name="reference", execution="async"),),
        devices=tuple(Device(id=f"d{k}", kind="reference") for k in range(2)),
        links=Links(within_host=Link(bandwidth_bytes_per_s=8.0, mode="streaming", chunks=4)),
        skip_tensors="direct",
    )
    asked = request(layers, cluster, 2, edges=edges, task="inference")
    schedule = make_plan(asked, [["a", "b", "c"]], "1f1b", 2).schedule
    orders = (("0F0", "0F1"), ("1F0", "2F0", "1F1", "2F1"))
    custom = schedule.model_copy(update={"name": "custom", "orders": orders})
    job = prepared(bare_plan(asked, [["a"], ["b"], ["c"]], [["d0"], ["d1"], ["d1"]], custom)).job
    way = ("link", "d0", "d1")
    found = replay_flow(job, Flow(parts_of(job), {way: 2}))
    made, left = found.made_s[way], found.left_s[way]
    assert len(made) == 16
    assert all(made[k] >= left[k - 2] for k in range(2, 16))
    with pytest.raises(InvalidInputError, match="waits forever for room in the FIFO"):
        replay_flow(job, Flow(parts_of(job), {way: 1}))


def jobs() -> st.SearchStrategy[Prepared]:
    def make(seed: int) -> Prepared | None:
        plan, _ = random_plan(seed)
        try:
            ready = prepared(plan)
            replay_events(ready.job)
        except InvalidInputError:
            return None
        return ready

    return st.integers(0, 2000).map(make).filter(lambda ready: ready is not None)  # type: ignore[return-value]


def most_at_once(job: Job) -> int:
    """Most tensors that one operation sends the same way."""
    pairs = zip(job.lowered.messages, job.prices, strict=True)
    return max(Counter((m.made_by, p.resources[0]) for m, p in pairs if p.resources).values(), default=1)


@settings(max_examples=120, deadline=None)
@given(jobs(), st.data())
def test_with_a_fixed_order_nothing_gets_slower_when_something_gets_faster(
    ready: Prepared, data: st.DataObject
) -> None:
    """Links, slices (seconds of operations), memory ports and FIFO depth, one of them or all, here or everywhere."""
    port_s = {
        o: data.draw(st.sampled_from([0.0, 0.5, 1.0])) * s for order in ready.job.seconds for o, s in order.items()
    }
    job = replace(ready.job, port_s=port_s)
    parts = parts_of(job)
    ways = {price.resources[0] for price in job.prices if price.resources}
    depth = most_at_once(job) + data.draw(st.integers(0, 3))
    before = Flow(parts, dict.fromkeys(ways, depth))
    slow = replay_flow(job, before)
    factors = {name: data.draw(st.sampled_from([1.0, 0.5, 0.8])) for name in ("links", "slices", "port")}
    better = faster(job, factors, random.Random(data.draw(st.integers(0, 10**6))))
    after = Flow(parts, dict.fromkeys(ways, depth + data.draw(st.integers(0, 3))), order=slow.granted)
    fast = replay_flow(better, after)
    assert step_s(fast) <= step_s(slow) * (1 + 1e-9)
    for operation, end_s in slow.replayed.ends_s.items():
        assert fast.replayed.ends_s[operation] <= end_s * (1 + 1e-9) + 1e-12


def faster(job: Job, factors: dict[str, float], draw: random.Random) -> Job:
    """Each transfer, operation and turn at a port by its factor, or as it was."""

    def some(name: str) -> float:
        return factors[name] if draw.random() < 0.7 else 1.0

    scale = {operation: some("slices") for order in job.seconds for operation in order}
    buckets = tuple(
        replace(
            bucket,
            price=bucket.price._replace(seconds=bucket.price.seconds * some("links")),
            parts=tuple(part._replace(after_s=part.after_s * scale.get(part.operation, 1.0)) for part in bucket.parts),
        )
        for bucket in job.buckets
    )
    return replace(
        job,
        prices=tuple(price._replace(seconds=price.seconds * some("links")) for price in job.prices),
        seconds=tuple({o: s * scale[o] for o, s in order.items()} for order in job.seconds),
        port_s={o: s * some("port") for o, s in job.port_s.items()},
        buckets=buckets,
    )


def test_whoever_a_turn_sets_free_comes_next_on_every_resource() -> None:
    """A chunk that leaves frees its link and both cards: three may wait for it, and none is forgotten."""
    job = prepared(random_plan(911)[0]).job
    slow = replay_flow(job, Flow(parts_of(job)))
    better = replace(job, seconds=tuple({o: s * 0.8 for o, s in order.items()} for order in job.seconds))
    fast = replay_flow(better, Flow(parts_of(job), order=slow.granted))
    assert step_s(fast) <= step_s(slow)


def test_first_come_first_served_a_faster_board_may_make_a_slower_step() -> None:
    """The case of docs/fpga.md: hosts whose cards carry one transfer at a time, either way, of 2 s each.

    With its second board twice as fast, gradient 0 is ready just before activation 1 and keeps the card from it.
    """
    layers = [layer("l0", 3.0, 1.0, output_bytes_per_sample=2.0), layer("l1", 1.0, 1.0)]
    link = Link(bandwidth_bytes_per_s=1.0)
    cluster = Cluster(
        kinds=(DeviceKind(name="reference"),),
        devices=tuple(Device(id=f"d{k}", kind="reference", host=f"h{k}") for k in range(2)),
        links=Links(between_hosts=link),
        host_nic=link,
    )
    job = prepared(make_plan(request(layers, cluster, 2), [["l0"], ["l1"]], "1f1b", 2)).job
    halved = tuple({o: s / 2 if o.stage else s for o, s in order.items()} for order in job.seconds)
    faster = replace(job, seconds=halved)
    before = replay_flow(job, Flow({}))
    assert step_s(before) == 13.0
    assert step_s(replay_flow(faster, Flow({}))) == 14.0
    assert step_s(replay_flow(faster, Flow({}, order=before.granted))) <= 13.0
