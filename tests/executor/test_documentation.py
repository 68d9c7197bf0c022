"""The network in the documentation is one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch

PAGE = Path(__file__).parents[2] / "docs" / "training.md"


def test_the_network_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "documented"}
    exec(block, names)
    model = names["model"]()
    assert model(tokens=torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, 100)
