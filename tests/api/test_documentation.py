"""The documents name every setting with its default, every route, every state, every scope and figure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bapipe_api import Settings, create_app
from bapipe_api.keys import SCOPES
from bapipe_api.metrics import Metrics
from bapipe_api.reference import reference
from bapipe_api.states import State

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / name).read_text() for name in ("service.md", "operations.md"))


def test_every_setting_is_listed_with_its_default() -> None:
    fields = Settings.model_fields
    the_clients = {"API_KEY"}
    assert set(re.findall(r"`BAPIPE_(\w+)`", PAGE)) == {name.upper() for name in fields} | the_clients
    for name, field in fields.items():
        if name not in ("host", "port", "max_concurrent_solves"):
            default = f"{field.default:g}" if isinstance(field.default, float) else field.default
            assert f"| `BAPIPE_{name.upper()}` | {default} |" in PAGE
    assert f"| `BAPIPE_HOST`, `BAPIPE_PORT` | {fields['host'].default}, {fields['port'].default} |" in PAGE
    assert "| `BAPIPE_MAX_CONCURRENT_SOLVES` | the number of cores |" in PAGE


def test_every_route_is_listed(tmp_path: Path) -> None:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path}/plans.sqlite3"))
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in PAGE, path


def test_every_state_is_listed() -> None:
    assert all(f"`{state}`" in PAGE for state in State)


def test_every_scope_and_figure_is_listed() -> None:
    assert all(f"`{scope}`" in PAGE for scope in SCOPES)
    figures = {family.name for family in Metrics().registry.collect() if family.name.startswith("bapipe")}
    assert figures == {"bapipe_jobs", "bapipe_solve_duration_seconds"}
    assert all(f"`{name}" in PAGE for name in (*figures, "bapipe_queue_depth", "bapipe_jobs_running"))


def test_the_reference_is_that_of_this_release() -> None:
    assert (DOCS / "api.md").read_text() == reference(), "`make reference` writes it anew"


@pytest.mark.parametrize("name", ["service.md", "operations.md", "api.md"])
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (DOCS / name).read_text()):
        assert (DOCS / target).exists(), target
