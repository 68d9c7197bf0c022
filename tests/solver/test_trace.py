"""A trace holds all of its simulation, and keeps to the format that Perfetto and chrome://tracing read."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe.problem import Link
from bapipe.simulator import drawn, simulate
from bapipe.simulator.simulation import Simulation
from bapipe.trace import chrome_trace
from judges.instances import cluster, even_request, layer, make_plan, request, split
from judges.plans import FEATURES, random_plan

Event = dict[str, Any]
Thread = tuple[int, int]

FIELDS = {
    "M": {"ph", "pid", "tid", "name", "args"},
    "X": {"ph", "pid", "tid", "cat", "name", "ts", "dur", "args"},
    "s": {"ph", "pid", "tid", "cat", "name", "ts", "id"},
    "f": {"ph", "pid", "tid", "cat", "name", "ts", "id", "bp"},
    "C": {"ph", "pid", "tid", "name", "ts", "args"},
}
NUMBERS = ("pid", "tid", "ts", "dur", "id")
ROUNDING_US = 2e-3


def two_stages(**fields: Any) -> Plan:
    """1F1B of two micro-batches over two equal stages, half a second for a transfer."""
    layers = [layer(name, parameter_bytes=8, output_bytes_per_sample=4.0) for name in "ab"]
    asked = request(layers, cluster(2, Link(bandwidth_bytes_per_s=8.0), **fields), 2)
    return make_plan(asked, [["a"], ["b"]], "1f1b", 2)


def without_stashes(plan: Plan) -> Plan:
    """The same plan for layers that keep nothing for their backward."""
    nothing = {"stash_bytes_per_sample": 0.0, "recompute_stash_bytes_per_sample": None}
    profile = plan.request.profile
    layers = tuple(each.model_copy(update=nothing) for each in profile.layers)
    asked = plan.request.model_copy(update={"profile": profile.model_copy(update={"layers": layers})})
    return plan.model_copy(update={"request": asked})


def traced(plan: Plan) -> tuple[Simulation, list[Event]]:
    simulation = simulate(plan)
    document = json.loads(chrome_trace(plan, simulation))
    assert document.keys() == {"displayTimeUnit", "traceEvents"}
    return drawn(plan, simulation), document["traceEvents"]


def thread_names(events: list[Event]) -> dict[Thread, str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}


def slices(events: list[Event]) -> dict[Thread, list[Event]]:
    found: dict[Thread, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return found


def counters(events: list[Event], process: int, name: str) -> list[tuple[float, float]]:
    rows = [event for event in events if event["ph"] == "C" and event["pid"] == process and event["name"] == name]
    return [(event["ts"], *event["args"].values()) for event in rows]


def check_format(simulation: Simulation, events: list[Event]) -> None:
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == dict(enumerate(simulation.devices, start=1))
    for event in events:
        assert event.keys() == FIELDS[event["ph"]]
        assert event["pid"] in named
        assert all(isinstance(event[field], int | float) and event[field] >= 0 for field in NUMBERS if field in event)
    assert slices(events).keys() <= thread_names(events).keys()


def check_times(simulation: Simulation, events: list[Event]) -> None:
    """Nothing on a thread is above another, or out of order; all that is computed is there, to the rounding."""
    names = thread_names(events)
    busy_us: Counter[int] = Counter()
    for (process, thread), mine in slices(events).items():
        for before, after in pairwise(mine):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6 * ROUNDING_US
        assert mine[-1]["ts"] + mine[-1]["dur"] <= simulation.step_time_s * 1e6 + ROUNDING_US
        if names[process, thread].startswith("compute"):
            busy_us[process] += sum(event["dur"] for event in mine)
    allowed_us = ROUNDING_US * len(events)
    for process, busy_s in enumerate(simulation.busy_s, start=1):
        assert busy_us[process] == pytest.approx(busy_s * 1e6, abs=allowed_us)


def check_contents(simulation: Simulation, events: list[Event]) -> None:
    categories = Counter(event["cat"] for mine in slices(events).values() for event in mine)
    updates = zip(simulation.optimizer_start_s, simulation.optimizer_end_s, strict=True)
    sent = len(simulation.transfers.start_s)
    assert categories["compute"] == len(simulation.operations.start_s) + sum(end > start for start, end in updates)
    assert categories["send"] == categories["receive"] == sent
    starts, ends = ({e["id"]: e for e in events if e["ph"] == phase} for phase in "sf")
    assert starts.keys() == ends.keys() == set(range(sent))
    assert all(starts[flow]["ts"] < ends[flow]["ts"] for flow in starts)


def check_memory(plan: Plan, simulation: Simulation, events: list[Event]) -> None:
    """From what the device needs without any stash up to the peak, and back."""
    without_bytes = simulate(without_stashes(plan)).peak_memory_bytes
    for process, peak_bytes in enumerate(simulation.peak_memory_bytes, start=1):
        memory = counters(events, process, "memory")
        assert max(size for _, size in memory) == peak_bytes
        assert memory[0][1] == pytest.approx(without_bytes[process - 1], rel=1e-12)
        assert memory[-1][1] == pytest.approx(without_bytes[process - 1], rel=1e-12)
        assert all(before <= after for (before, _), (after, _) in pairwise(memory))
        kept = [count for _, count in counters(events, process, "in flight")]
        assert (kept[0], kept[-1], min(kept)) == (0, 0, 0)


@pytest.mark.parametrize("block", range(8))
def test_a_trace_of_every_kind_of_plan(block: int) -> None:
    for seed in range(block * len(FEATURES), (block + 1) * len(FEATURES)):
        plan, _ = random_plan(seed)
        try:
            simulate(plan)
        except InvalidInputError:
            continue
        simulation, events = traced(plan)
        check_format(simulation, events)
        check_contents(simulation, events)
        if not any(stage.forward_share for stage in plan.stages):
            check_times(simulation, events)
            check_memory(plan, simulation, events)


def test_what_two_engines_keep_adds_up_in_the_order_of_time() -> None:
    plan = two_stages(execution="async")
    halves = tuple(stage.model_copy(update={"forward_share": 0.5}) for stage in plan.stages)
    simulation, events = traced(plan.model_copy(update={"stages": halves}))
    for process, peak_bytes in enumerate(simulation.peak_memory_bytes, start=1):
        memory = counters(events, process, "memory")
        assert max(size for _, size in memory) == peak_bytes
        assert memory == sorted(memory, key=lambda row: row[0])


def test_two_engines_have_a_thread_each() -> None:
    plan = two_stages(execution="async")
    split = plan.stages[0].model_copy(update={"forward_share": 0.5})
    _, events = traced(plan.model_copy(update={"stages": (split, plan.stages[1])}))
    names = [name for name in thread_names(events).values() if name.startswith("compute")]
    assert names == ["compute forwards", "compute backwards", "compute"]


def test_the_threads_of_a_pipeline() -> None:
    _, events = traced(two_stages(memory_bandwidth_bytes_per_s=1e3))
    assert list(thread_names(events).values()) == [
        "compute", "send to d1", "receive from d1", "compute", "receive from d0", "send to d0",
    ]  # fmt: skip
    first = slices(events)[1, 1]
    assert [(event["name"], event["ts"] / 1e6, event["dur"] / 1e6) for event in first[:4]] == [
        ("F0", 0.0, 1.0),
        ("F1", 1.0, 1.0),
        ("B0", 5.0, 2.0),
        ("B1", 8.0, 2.0),
    ]
    assert first[0]["args"] == {"stage": 0, "micro-batch": 0, "kind": "forward"}
    assert first[4]["args"] == {"kind": "optimizer step"}
    sent = slices(events)[1, 2]
    assert [(event["name"], event["ts"] / 1e6, event["dur"] / 1e6) for event in sent] == [
        ("activation 0", 1.0, 0.5),
        ("activation 1", 2.0, 0.5),
    ]
    assert sent[0]["args"] == {"micro-batch": 0, "kind": "activation", "from": "d0", "to": "d1"}


def test_memory_follows_the_stashes() -> None:
    """A stash of 4 bytes is there from the start of a forward to the end of its backward."""
    plan = two_stages(reserved_bytes=100)
    simulation, events = traced(plan)
    peak_bytes = simulation.peak_memory_bytes[0]
    assert [(ts / 1e6, size - peak_bytes) for ts, size in counters(events, 1, "memory")] == [
        (0.0, -8.0),
        (0.0, -4.0),
        (1.0, 0.0),
        (7.0, -4.0),
        (10.0, -8.0),
        (10.0, -8.0),
    ]
    assert [count for _, count in counters(events, 1, "in flight")] == [0, 1, 2, 1, 0, 0]


def test_all_reduces_are_on_every_replica() -> None:
    layers = [layer("a", 1.0, 4.0, parameter_bytes=8), layer("b", 1.0, 1.0, parameter_bytes=8)]
    asked = request(layers, cluster(2, Link(bandwidth_bytes_per_s=4.0)), 2, gradient_bucket_bytes=8)
    _, events = traced(make_plan(asked, [["a", "b"]], "data-parallel", 2))
    threads = [thread for thread, name in thread_names(events).items() if name == "all-reduce"]
    assert [process for process, _ in threads] == [1, 2]
    for thread in threads:
        assert [(event["ts"] / 1e6, event["dur"] / 1e6) for event in slices(events)[thread]] == [(3.0, 2.0), (7.0, 2.0)]
        assert slices(events)[thread][0]["args"] == {"stage": 0, "kind": "all-reduce of gradients", "bytes": 8.0}


def test_any_name_is_a_name() -> None:
    plan = two_stages()
    renamed = json.loads(plan.model_dump_json().replace('"d0"', r'"\"\\\n<é"'))
    _, events = traced(Plan.model_validate(renamed, strict=False))
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ['"\\\n<é', "d1"]


def test_the_same_simulation_gives_the_same_text() -> None:
    plan = two_stages()
    assert chrome_trace(plan, simulate(plan)) == chrome_trace(plan, simulate(plan))


def test_a_long_step() -> None:
    """8 stages by 4,096 micro-batches: every operation, and each transfer at both of its ends."""
    asked = even_request(8, 4096)
    layers = [each.model_copy(update={"output_bytes_per_sample": 4.0}) for each in asked.profile.layers]
    asked = request(layers, cluster(8, Link(bandwidth_bytes_per_s=1e3)), 4096)
    _, events = traced(make_plan(asked, split(asked, [1] * 8), "1f1b-so", 4096))
    assert Counter(event["ph"] for event in events)["X"] == 2 * 8 * 4096 + 2 * 2 * 7 * 4096
