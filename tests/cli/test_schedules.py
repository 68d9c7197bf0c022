"""`bapipe schedules`: the table, the plans behind it, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_the_table_has_a_row_a_schedule(run: Any) -> None:
    result = run("schedules", "--stages", "4", "--microbatches", "8")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len([line for line in lines if "│" in line]) == 12
    assert any(line.startswith("1f1b-so") and "36 s" in line for line in lines)


def test_json_has_the_figures(run: Any) -> None:
    rows = json.loads(run("schedules", "--microbatches", "5", "--json").stdout)

    assert [row["schedule"] for row in rows][:3] == ["data-parallel", "gpipe", "1f1b"]
    assert "interleaved" not in [row["schedule"] for row in rows]
    assert rows[1]["time_s"] == rows[1]["formula_s"] == 8 * 3 + 6 * 0.5


def test_a_plan_can_be_simulated(run: Any, tmp_path: Path) -> None:
    for name in ("zb-v", "pipedream", "fbp-as"):
        path = tmp_path / f"{name}.json"
        path.write_text(run("schedules", "--plan", name, "--transfer", "0").stdout, encoding="utf-8")
        result = run("simulate", str(path))
        assert result.exit_code == 0, result.output
        assert "Faults" not in result.stdout


def test_a_plan_that_cannot_be_made_is_wrong_usage(run: Any) -> None:
    unknown = run("schedules", "--plan", "zb-x")
    assert unknown.exit_code == 2
    assert "zb-v" in unknown.stderr
    odd = run("schedules", "--plan", "interleaved", "--stages", "3")
    assert odd.exit_code == 2
    assert "N divides M; here N = 3 (--stages), M = 8 (--microbatches)" in " ".join(odd.stderr.split())


def test_the_page_has_an_image_a_schedule(run: Any, tmp_path: Path) -> None:
    result = run("schedules", "--stages", "2", "-o", str(tmp_path / "page.md"))

    assert result.exit_code == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "bapipe schedules --stages 2" in text
    assert len(list((tmp_path / "page").iterdir())) == 12
