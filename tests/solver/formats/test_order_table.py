"""Orders given as CSV or JSON: read, located, and refused with their row and cell when they are illegal."""

from __future__ import annotations

import json

import pytest

from bapipe.errors import FormatError, InvalidInputError
from bapipe.formats.order_table import load_orders, parse_orders, with_orders
from bapipe.simulator import simulate
from judges.instances import cluster, layer, make_plan, request

CSV = "0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n"


def plan_of(task="training", recomputation="never"):
    asked = request([layer("a"), layer("b")], cluster(2), 2, task=task, recomputation=recomputation)
    return make_plan(asked, [["a"], ["b"]], "1f1b", 2)


def test_a_row_is_the_order_of_a_device_and_empty_cells_are_skipped():
    table = parse_orders(CSV)
    assert table.orders == (("0F0", "0F1", "0B0", "0B1"), ("1F0", "1B0", "1F1", "1B1"))
    assert table.cells == ((1, 2, 4, 5), (2, 3, 4, 5))
    assert simulate(with_orders(plan_of(), table)).step_time_s == simulate(plan_of()).step_time_s


@pytest.mark.parametrize("wrapped", [True, False])
def test_json_says_the_same(wrapped, tmp_path):
    rows = [["0F0", "0F1", "", "0B0", "0B1"], ["", "1F0", "1B0", "1F1", "1B1"]]
    path = tmp_path / "orders.json"
    path.write_text(json.dumps({"orders": rows} if wrapped else rows))
    assert load_orders(path) == parse_orders(CSV)


def test_a_blank_line_is_a_device_without_work():
    assert parse_orders("0F0\n\n").orders == (("0F0",), ())


def attempt(text: str, **fields: str) -> None:
    table = parse_orders(text)
    try:
        simulate(with_orders(plan_of(**fields), table))
    except InvalidInputError as found:
        raise InvalidInputError(table.located(found.faults)) from None


def refused(text: str, **fields: str) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidInputError) as error:
        attempt(text, **fields)
    return [(fault.code, fault.pointer, fault.detail) for fault in error.value.faults]


SECOND = "1F0,1B0,1F1,1B1"


@pytest.mark.parametrize(
    ("text", "code", "pointer", "said"),
    [
        (
            f"0F0,0F1,0B0,0B1,0F0\n{SECOND}",
            "duplicate_operation",
            "0/4",
            "row 1, cell 5: 0F0 was already executed as operation 1;",
        ),
        (f"0F0,,0F1,0B0,0B1,0B1\n{SECOND}", "duplicate_operation", "0/4", "row 1, cell 6: 0B1"),
        (f"0F0,0F1,0B0\n{SECOND}", "missing_operation", "0", "row 1: 0B1 is never executed"),
        ("0F0,0F1,0B0,0B1\n\n", "missing_operation", "1", "row 2: 1F0, 1B0, 1F1, 1B1 are never executed"),
        (f"0F0,0F1,0B0,0B1,1F0\n{SECOND}", "misplaced_operation", "0/4", "row 1, cell 5: 1F0 belongs to stage 1"),
        (f"0F0,0F1,0B0,0B1,0F2\n{SECOND}", "unknown_operation", "0/4", "row 1, cell 5: 0F2: the micro-batches are 0"),
        (f"0F0,0F1,0B0,0B1,2F0\n{SECOND}", "misplaced_operation", "0/4", "row 1, cell 5: 2F0 belongs to stage 2"),
        (f"0F0,0F1,forward,0B0,0B1\n{SECOND}", "unknown_operation", "0/2", "row 1, cell 3: 'forward' is none"),
        (f"0F0,0F1,0B0,0B01\n{SECOND}", "unknown_operation", "0/3", "row 1, cell 4: '0B01'"),
        (f"0f0,0F1,0B0,0B1\n{SECOND}", "unknown_operation", "0/0", "row 1, cell 1: '0f0'"),
        (f"0F0,0F1,-1F0,0B1\n{SECOND}", "unknown_operation", "0/2", "row 1, cell 3: '-1F0'"),
        (f"0F0,0SEND_F0,0F1\n{SECOND}", "unknown_operation", "0/1", "row 1, cell 2: '0SEND_F0' is a transfer"),
        (f"0F0,0F1,0B0,0I1,0W1\n{SECOND}", "mixed_backward", "0/3", "row 1, cell 4: 0I1: the backward of stage 0 is"),
        (f"0F0,0F1,0I0,0W0,0B1\n{SECOND}", "mixed_backward", "0/4", "row 1, cell 5: 0B1: the backward of stage 0 is"),
        (f"0F0,0F1,0I0,0I1,0W0\n{SECOND}", "missing_operation", "0", "row 1: 0W1 is never executed"),
        (f"0F0,0F1,0I0,0I1,0W0,0W1\n{SECOND}", "missing_split", "0/2", "row 1, cell 3: 0I0: a layer of stage 0"),
        (f"0F0,0R0,0F1,0B0,0B1\n{SECOND}", "unknown_operation", "0/1", "row 1, cell 2: 0R0: stage 0 recomputes no"),
        (f"0B0,0F0,0F1,0B1\n{SECOND}", "deadlock", "0/0", "row 1, cell 1: 0B0 waits forever for"),
        ("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0", "deadlock", "0/1", "row 1, cell 2: 0B0 waits forever for 1B0"),
        (f"0F0,0F1,0B0,0B1\n{SECOND}\n2F0", "wrong_length", "", "3 rows for 2 devices"),
        ("0F0,0F1,0B0,0B1", "wrong_length", "", "1 rows for 2 devices"),
        ('"0F0,0F1\n', "not_csv", None, "not a table of comma-separated cells"),
        ('[["0F0", 3], []]', "wrong_type", "0/1", "row 1, cell 2: Input should be a string such as 2F0"),
        ('[["0F0"], "1F0"]', "wrong_type", "1", "row 2: Input should be an array"),
        ('{"order": [["0F0"]]}', "wrong_type", "", "array of arrays"),
        ("[[", "not_json", None, "not JSON"),
    ],
)
def test_an_illegal_table_has_a_clear_reason(text, code, pointer, said):
    where = "" if pointer is None else f"/schedule/orders/{pointer}".removesuffix("/")
    found = refused(text)
    assert (found[0][0], found[0][1]) == (code, where)
    assert said in found[0][2]


def test_inference_has_forwards_only():
    assert refused("0F0,0F1,0B0\n1F0,1F1", task="inference")[0][2].startswith("row 1, cell 3: 0B0: inference has no")


def test_every_fault_comes_at_once():
    found = refused("0F0,0F0,1F1\n1F0")
    assert [(code, pointer) for code, pointer, _ in found] == [
        ("duplicate_operation", "/schedule/orders/0/1"),
        ("misplaced_operation", "/schedule/orders/0/2"),
        ("missing_operation", "/schedule/orders/0"),
        ("missing_operation", "/schedule/orders/1"),
    ]


def test_an_infeasible_plan_has_no_orders_to_replace():
    plan = plan_of().model_copy(update={"status": "infeasible", "schedule": None, "stages": (), "prediction": None})
    with pytest.raises(InvalidInputError) as error:
        with_orders(plan, parse_orders(CSV))
    assert error.value.faults[0].code == "nothing_to_execute"


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(FormatError):
        load_orders(tmp_path / "orders.csv")
