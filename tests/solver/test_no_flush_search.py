"""The search for the least period without a flush, against every partition of small chains."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from bapipe.check import check
from bapipe.errors import InvalidInputError
from bapipe.plan import Plan, Schedule
from bapipe.planner import plan
from bapipe.problem import Edge, Link, PlanRequest, TiedParameters
from judges.endless import cycle_period_s
from judges.general import Judge
from judges.instances import bare_plan, cluster, layer, request


def asked(seed: int) -> PlanRequest:
    """A chain on a few devices, with transfers, updates and memory limits now and then."""
    random = Random(seed)
    layers = [
        layer(
            f"l{number}",
            random.randint(1, 16) / 4,
            random.randint(1, 32) / 4,
            parameter_bytes=40 * random.randint(0, 4),
            output_bytes_per_sample=float(random.choice((0, 4, 8, 16))),
            stash_bytes_per_sample=float(random.choice((0, 50, 100))),
        )
        for number in range(random.randint(2, 6))
    ]
    devices = cluster(
        random.randint(2, 4),
        Link(bandwidth_bytes_per_s=random.choice((None, 2.0, 8.0)), latency_s=random.choice((0.0, 0.25))),
        memory_bandwidth_bytes_per_s=random.choice((None, None, 512.0)),
        memory_bytes=random.choice((None, 1200, 2000)),
        receive_buffers=random.choice(("in_flight", "all")),
    )
    return request(
        layers,
        devices,
        random.choice((1, 2, 4)),
        schedules=("pipedream",),
        idle_devices=random.random() < 0.8,
        optimizer_bytes_per_parameter=random.choice((0, 8)),
    )


def every_plan(wanted: PlanRequest) -> list[Plan]:
    """All partitions into consecutive layers, at all micro-batch sizes."""
    names = [item.id for item in wanted.profile.layers]
    most = len(wanted.cluster.devices)
    found = []
    for n in range(1 if wanted.idle_devices else most, min(most, len(names)) + 1):
        for inner in combinations(range(1, len(names)), n - 1):
            cuts = [0, *inner, len(names)]
            stages = [names[cuts[s] : cuts[s + 1]] for s in range(n)]
            for m in [count for count in range(1, wanted.batch_size + 1) if wanted.batch_size % count == 0]:
                orders = [
                    tuple(
                        operation
                        for k in range(m + n - s - 1)
                        for operation in (
                            *([f"{s}F{k}"] if k < m else []),
                            *([f"{s}B{k - n + s + 1}"] if k >= n - s - 1 else []),
                        )
                    )
                    for s in range(n)
                ]
                schedule = Schedule(
                    name="pipedream",
                    num_microbatches=m,
                    microbatch_size=wanted.batch_size // m,
                    weight_versions=tuple(range(n, 0, -1)),
                    orders=(*orders, *[()] * (most - n)),
                )
                found.append(bare_plan(wanted, stages, [[f"d{s}"] for s in range(n)], schedule))
    return found


def fits(candidate: Plan) -> bool:
    limit = candidate.request.cluster.kinds[0].memory_bytes
    return limit is None or max(Judge(candidate).peaks.values()) <= limit


@pytest.mark.parametrize("block", range(4))
def test_the_search_finds_the_least_period_of_all_partitions(block: int) -> None:
    for seed in range(15 * block, 15 * block + 15):
        wanted = asked(seed)
        periods = [cycle_period_s(candidate) for candidate in every_plan(wanted) if fits(candidate)]
        answer = plan(wanted)
        assert answer.status == ("optimal" if periods else "infeasible"), seed
        if periods:
            assert answer.pace_s == pytest.approx(min(periods), rel=1e-9), seed
            assert answer.proof.lower_bound_s == pytest.approx(answer.pace_s, rel=1e-9)
            assert check(answer) == [], seed
            assert any("does not train as one device would" in warning for warning in answer.warnings)


def test_it_is_chosen_only_where_it_is_named() -> None:
    layers = [layer(f"l{number}", output_bytes_per_sample=8.0) for number in range(4)]
    wanted = request(layers, cluster(4, Link(bandwidth_bytes_per_s=16.0)), 8)
    assert plan(wanted).schedule.weight_versions is None  # type: ignore[union-attr]
    without = plan(wanted.model_copy(update={"schedules": ("1f1b", "1f1b-so")}))
    named = plan(wanted.model_copy(update={"schedules": ("1f1b", "1f1b-so", "pipedream")}))
    assert named.schedule is not None
    assert named.schedule.name == "pipedream"
    assert named.pace_s < without.pace_s  # type: ignore[operator]
    assert named.baselines[-1].speedup == named.baselines[-1].step_time_s / named.pace_s  # type: ignore[operator]


SKIP = (Edge(source="l0", target="l1"), Edge(source="l1", target="l2"), Edge(source="l0", target="l2"))
TIED = (TiedParameters(layers=("l0", "l2"), parameter_bytes=8),)


@pytest.mark.parametrize(
    ("fields", "devices", "said"),
    [
        ({"objective": "bottleneck"}, {}, "use objective step-time"),
        ({"task": "inference"}, {}, "inference has none to update"),
        ({}, {"link": Link(mode="blocking", latency_s=0.5)}, "over overlapped links only"),
        ({}, {"host_nic": Link(bandwidth_bytes_per_s=8.0)}, "share a card"),
        ({"tied_parameters": TIED}, {}, "tied parameters"),
        ({"edges": SKIP}, {"skip_tensors": "direct"}, "sent past a stage"),
    ],
)
def test_where_it_is_not_searched_that_is_said_with_its_place(fields, devices, said) -> None:  # type: ignore[no-untyped-def]
    layers = [layer(f"l{number}", output_bytes_per_sample=8.0) for number in range(3)]
    wanted = request(layers, cluster(3, **devices), 4, schedules=("1f1b", "pipedream"), **fields)
    with pytest.raises(InvalidInputError) as error:
        plan(wanted)
    faults = [fault for fault in error.value.faults if fault.pointer == "/schedules/1"]
    assert any(said in fault.detail for fault in faults)
