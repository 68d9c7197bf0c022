"""Orders that a user gives: a table with a row for each device of the cluster, as CSV or JSON.

In CSV every line is the order of a device, every cell an operation such as `2F0` (stage, kind, micro-batch); empty
cells are moments without work, and a blank line is a device without any. This is also how torch's pipeline schedules
are written. In JSON it is an array of arrays of such strings, by itself or as `orders` of an object.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import parse_json
from bapipe.formats.native import looks_like_json
from bapipe.formats.reading import decode, read_text
from bapipe.orders import OPERATION
from bapipe.plan import Plan

TRANSFER = re.compile(r"\d+(SEND|RECV)_[FB]\d+|\d+(UN)?SHARD\d*|\d+REDUCE_GRAD\d*")
"""What torch adds to an order when it is lowered."""

PLACE = re.compile(r"/schedule/orders/(\d+)(?:/(\d+))?")


@dataclass(frozen=True)
class OrderTable:
    """The operations of each device, and in which cell of its row (from 1) each of them stood."""

    orders: tuple[tuple[str, ...], ...]
    cells: tuple[tuple[int, ...], ...]

    def located(self, faults: Iterable[Fault]) -> list[Fault]:
        """The faults, those of orders with their row and cell before the sentence."""
        return [self._located(fault) for fault in faults]

    def _located(self, fault: Fault) -> Fault:
        match = PLACE.fullmatch(fault.pointer)
        if match is None or int(match[1]) >= len(self.cells):
            return fault
        row = int(match[1])
        cell = "" if match[2] is None else f", cell {self.cells[row][int(match[2])]}"
        return replace(fault, detail=f"row {row + 1}{cell}: {fault.detail}")


def load_orders(path: str | PathLike[str]) -> OrderTable:
    """The table in a file.

    Raises:
        FormatError: the file cannot be read.
        InvalidInputError: every cell that is no operation, with its row and cell.
    """
    return parse_orders(read_text(path))


def parse_orders(text: str | bytes) -> OrderTable:
    """The table in `text`. Otherwise as `load_orders`."""
    text = decode(text.encode() if isinstance(text, str) else text, "the text")
    rows = _json_rows(parse_json(text)) if looks_like_json(text) else _csv_rows(text)
    kept = [[(number, cell) for number, cell in enumerate(row, start=1) if cell != ""] for row in rows]
    table = OrderTable(
        tuple(tuple(str(cell) for _, cell in row) for row in kept),
        tuple(tuple(number for number, _ in row) for row in kept),
    )
    faults = [
        Fault(code, detail, f"/schedule/orders/{row}/{place}")
        for row, cells in enumerate(kept)
        for place, (_, cell) in enumerate(cells)
        for code, detail in _cell_faults(cell)
    ]
    if faults:
        raise InvalidInputError(table.located(faults))
    return table


def with_orders(plan: Plan, table: OrderTable) -> Plan:
    """`plan` with its schedule executed in the orders of `table`, under the name `custom`; its figures are left as they
    are, and are to be simulated anew.

    Raises:
        InvalidInputError: the plan has no schedule, or not as many devices as the table has rows.
    """
    if plan.schedule is None:
        detail = f"the plan is {plan.status}: it has no schedule whose orders could be replaced"
        raise InvalidInputError([Fault("nothing_to_execute", detail, "/schedule")])
    devices = len(plan.request.cluster.devices)
    if len(table.orders) != devices:
        detail = f"{len(table.orders)} rows for {devices} devices; give one each, blank for a device without work"
        raise InvalidInputError([Fault("wrong_length", detail, "/schedule/orders")])
    schedule = plan.schedule.model_copy(update={"name": "custom", "orders": table.orders})
    return plan.model_copy(update={"schedule": schedule})


def _csv_rows(text: str) -> list[list[Any]]:
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise InvalidInputError([Fault("not_csv", f"not a table of comma-separated cells: {error}")]) from None
    return [[cell.strip() for cell in row] for row in rows]


def _json_rows(value: Any) -> list[list[Any]]:
    rows = value.get("orders") if isinstance(value, dict) else value
    if not isinstance(rows, list):
        detail = 'orders are an array of arrays, by itself or as the field "orders" of an object'
        raise InvalidInputError([Fault("wrong_type", detail, "/schedule/orders")])
    faults = [
        Fault("wrong_type", f"row {number + 1}: Input should be an array", f"/schedule/orders/{number}")
        for number, row in enumerate(rows)
        if not isinstance(row, list)
    ]
    if faults:
        raise InvalidInputError(faults)
    return rows


def _cell_faults(cell: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(cell, str):
        yield "wrong_type", f"Input should be a string such as 2F0, not {_kind_of(cell)}"
    elif TRANSFER.fullmatch(cell):
        yield "unknown_operation", f"{cell[:60]!r} is a transfer, which follows from the operations; leave it out"
    elif OPERATION.fullmatch(cell) is None:
        yield "unknown_operation", f"{cell[:60]!r} is none; write stage, kind (F, B, I, W, R) and micro-batch, as 2F0"


def _kind_of(value: Any) -> str:
    names = {bool: "true or false", type(None): "null", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")
