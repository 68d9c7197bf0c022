"""docs/service.md names every setting with its default, every route and every state."""

from __future__ import annotations

import re
from pathlib import Path

from bapipe_api import Settings, create_app
from bapipe_api.states import State

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()


def test_every_setting_is_listed_with_its_default() -> None:
    fields = Settings.model_fields
    assert set(re.findall(r"`BAPIPE_(\w+)`", PAGE)) == {name.upper() for name in fields}
    for name, field in fields.items():
        if name not in ("host", "port", "max_concurrent_solves"):
            default = f"{field.default:g}" if isinstance(field.default, float) else field.default
            assert f"| `BAPIPE_{name.upper()}` | {default} |" in PAGE


def test_every_route_is_listed(tmp_path: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path}/plans.sqlite3"))
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in PAGE, path


def test_every_state_is_listed() -> None:
    assert all(f"`{state}`" in PAGE for state in State)
