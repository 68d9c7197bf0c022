"""A list is too short when it is, not when its items are wrong."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.errors import InvalidInputError
from bapipe.faults import parse
from bapipe.problem import ModelProfile


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([], [("too_short", "/layers")]),
        ([{"id": 7}], [("wrong_type", "/layers/0/id")]),
        ((), [("too_short", "/layers")]),
    ],
)
def test_a_list_of_wrong_items_is_not_empty(layers: Any, expected: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(ModelProfile, {"name": "one", "layers": layers})

    assert [(fault.code, fault.pointer) for fault in caught.value.faults] == expected
