"""Whatever an input holds in whatever place, it is read or refused with faults: nothing else is ever raised."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import MAX_FAULTS, parse, parse_json
from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.problem import PlanRequest

REQUEST: dict[str, Any] = {
    "profile": {
        "name": "three",
        "layers": [
            {
                "id": "a",
                "times": [
                    {
                        "device_kind": "reference",
                        "microbatch_size": 1,
                        "forward_s": 1.0,
                        "backward_s": 2.0,
                        "input_gradient_s": 1.0,
                        "weight_gradient_s": 1.0,
                    }
                ],
                "options": [{"name": "recomputed", "recompute": True}],
            },
            {"id": "b", "parameter_bytes": 4, "fpga": {"dsp_slices": 1}},
            {"id": "c"},
        ],
        "edges": [
            {"source": "a", "target": "b", "tensor": "x", "bytes_per_sample": 8.0},
            {"source": "b", "target": "c"},
        ],
        "tied_parameters": [{"layers": ["a", "c"], "parameter_bytes": 4}],
        "groups": [["a", "b"]],
        "pins": [{"layer": "a", "stage": "first"}, {"layer": "c", "device": "d1"}],
    },
    "cluster": {
        "kinds": [{"name": "reference", "memory_bytes": 100, "peak_flops": {"fp32": 1.0}, "sources": {"a": "b"}}],
        "devices": [{"id": "d0", "kind": "reference", "host": "h0"}, {"id": "d1", "kind": "reference", "host": "h1"}],
        "links": {"between_hosts": {}, "pairs": [{"devices": ["d0", "d1"], "link": {"mode": "blocking"}}]},
    },
    "batch_size": 4,
    "microbatch_sizes": [1, 2],
    "schedules": ["gpipe"],
}

NUMBERS = (0, -1, 10**30, 10**400, -(10**400), 1.5, float("nan"), float("inf"))
TEXTS = ("", "a", "d0", "a\0b", "x" * 300)
TREES: tuple[Any, ...] = ([], {}, [[]], [{}], ["a", "a"], [["a"]], {"id": []}, {"a/~b": 1}, {"": {}})
JUNK = st.sampled_from([None, True, *NUMBERS, *TEXTS, *TREES])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside `value`."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def changed(document: Any, place: int, change: str, junk: Any) -> Any:
    """`document` with `junk` in, beside, or instead of one of its values."""
    document = copy.deepcopy(document)
    paths = list(places(document))
    *way, last = paths[place % len(paths)]
    parent = document
    for key in way:
        parent = parent[key]
    if change == "replace":
        parent[last] = copy.deepcopy(junk)
    elif change == "remove":
        del parent[last]
    elif isinstance(parent, list):
        parent.append(copy.deepcopy(junk))
    else:
        parent["unknown"] = copy.deepcopy(junk)
    return document


def faults_in(document: Any) -> tuple[Fault, ...]:
    """What is wrong with `document` as a request; every other error is the test's."""
    try:
        parse(PlanRequest, document)
    except InvalidInputError as error:
        return error.faults
    return ()


CHANGES = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(["replace", "remove", "add"]), JUNK), min_size=1, max_size=3
)


def test_the_request_that_is_changed_is_itself_right() -> None:
    parse(PlanRequest, REQUEST)


@given(CHANGES)
def test_a_damaged_request_is_read_or_refused(changes: list[tuple[int, str, Any]]) -> None:
    document = REQUEST
    for change in changes:
        document = changed(document, *change)
    assert all(fault.code and fault.detail for fault in faults_in(document))


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff{}", b'["\\ud800"]', b'{"\\uDFFF": 1}', b"[" * 100_000, b"[" * 200 + b"]" * 200, b"9" * 5000],
)
def test_text_that_is_no_json_is_one_fault(text: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_json(text)
    assert [fault.code for fault in caught.value.faults] == ["not_json"]


def test_a_surrogate_pair_and_a_byte_order_mark_are_fine() -> None:
    assert parse_json(b'\xef\xbb\xbf["\\ud83d\\ude00"]') == ["\N{GRINNING FACE}"]


def test_the_faults_of_a_hostile_input_are_counted_not_listed() -> None:
    document = {**REQUEST, "profile": {"name": "wide", "layers": [{} for _ in range(3 * MAX_FAULTS)]}}
    with pytest.raises(InvalidInputError) as caught:
        parse(PlanRequest, json.loads(json.dumps(document)))
    assert len(caught.value.faults) == MAX_FAULTS + 1
    assert caught.value.faults[-1].code == "too_many_faults"


def test_a_problem_at_the_limits_of_what_can_be_said_is_planned() -> None:
    layers = [{"id": name, "parameter_bytes": 10**15, "output_bytes_per_sample": 1e15} for name in "ab"]
    time = {"device_kind": "slow", "microbatch_size": 1, "forward_s": 1e9, "backward_s": 1e9}
    document = {
        "profile": {"name": "slowest", "layers": [{**layer, "times": [time]} for layer in layers]},
        "cluster": {
            "kinds": [{"name": "slow", "memory_bandwidth_bytes_per_s": 1e-6}],
            "devices": [{"id": f"d{number}", "kind": "slow", "speed": 1e-6} for number in range(2)],
            "links": {"within_host": {"bandwidth_bytes_per_s": 1e-6, "latency_s": 1e9}},
        },
        "batch_size": 2**29,
        "microbatch_counts": [1, 8],
    }
    answer = plan(parse(PlanRequest, document))
    assert answer.status == "optimal"
    assert answer.prediction is not None
    assert math.isfinite(answer.prediction.step_time_s)
    assert parse(Plan, json.loads(answer.model_dump_json())) == answer


@pytest.mark.parametrize("rate", [0.0, 1e-300, -1.0, 1e300])
def test_a_rate_that_would_make_times_infinite_is_refused(rate: float) -> None:
    document = copy.deepcopy(REQUEST)
    document["cluster"]["links"]["within_host"] = {"bandwidth_bytes_per_s": rate}
    (fault,) = faults_in(document)
    assert fault.pointer == "/cluster/links/within_host/bandwidth_bytes_per_s"
