"""The name that was probably meant."""

from __future__ import annotations

import pytest

from bapipe.nearest import nearest

KNOWN = ["reference", "A100-40G", "A100-80G", "V100-16G"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("V100", "V100-16G"),
        ("v100-16g", "V100-16G"),
        ("A100", "A100-40G"),
        ("a100-80", "A100-80G"),
        ("referense", "reference"),
        ("TPU", None),
        ("", None),
    ],
)
def test_case_then_prefix_then_spelling(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == meant


def test_nothing_is_near_where_nothing_is_known() -> None:
    assert nearest("a", []) is None
