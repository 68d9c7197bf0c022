"""The map names every room."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("solver/bapipe", "api/bapipe_api", "api/bapipe_client", "api/bapipe_cli", "executor/bapipe_executor")
ROOMS = sorted(
    path.relative_to(ROOT / "solver/bapipe").as_posix() + ("/" if path.is_dir() else "")
    for path in (ROOT / "solver/bapipe").iterdir()
    if not path.name.startswith("_") and path.name != "py.typed"
)
MAP = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*PACKAGES, *ROOMS])
def test_the_map_names(name: str) -> None:
    assert name in MAP
