"""The table of schedules: its formulas are simulated times, its plans legal, its page current, its advice right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bapipe.catalogue import ENTRIES, Setting, page, rows
from bapipe.catalogue.versus import fewest_microbatches, versus
from bapipe.check import check
from judges import replay as judge

DOCS = Path(__file__).parents[3] / "docs"
SHOWN = Setting(stages=4, microbatches=8, transfer_s=0.5)
SETTINGS = [
    *(SHOWN, replace(SHOWN, microbatches=16), Setting(stages=1, microbatches=1), Setting(stages=1, microbatches=3)),
    *(Setting(stages=2, microbatches=4, transfer_s=3.0, chunks=1), Setting(stages=3, microbatches=5, transfer_s=1.0)),
    *(Setting(stages=5, microbatches=1, transfer_s=0.25), Setting(stages=6, microbatches=12, forward_s=2.0, chunks=2)),
    Setting(stages=8, microbatches=20, forward_s=1.5, backward_s=3.0, transfer_s=0.75),
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_formula_is_the_simulated_time_where_it_holds(setting: Setting) -> None:
    for row in rows(setting):
        if row.formula_s is not None:
            assert row.seconds == pytest.approx(row.formula_s, rel=1e-12), row.entry.name
        if row.free_formula_s is not None:
            assert row.free_s == pytest.approx(row.free_formula_s, rel=1e-12), row.entry.name


def test_every_plan_is_legal_and_every_formula_holds_somewhere() -> None:
    found = rows(SHOWN)
    assert [row.entry for row in found] == list(ENTRIES)
    assert all(row.free_formula_s is not None for row in found)
    for row in found:
        assert check(row.plan) == [], row.entry.name


def test_what_is_kept_in_flight() -> None:
    found = {row.entry.name: row.in_flight for row in rows(SHOWN)}
    assert found == {
        "data-parallel": (1, 1, 1, 1),
        "gpipe": (8, 8, 8, 8),
        "1f1b": (4, 3, 2, 1),
        "1f1b-sno": (4, 3, 2, 1),
        "1f1b-so": (7, 5, 3, 1),
        "1f1b-as": (4, 3, 2, 1),
        "fbp-as": (8, 6, 4, 2),
        "pipedream": (4, 3, 2, 1),
        "interleaved": (11 / 2, 9 / 2, 7 / 2, 5 / 2),
        "zb-h1": (4, 4, 4, 4),
        "zb-h2": (7, 7, 7, 7),
        "zb-v": (4, 4, 4, 4),
    }


def test_a_schedule_that_cannot_be_built_is_left_out() -> None:
    names = [row.entry.name for row in rows(Setting(stages=3, microbatches=5))]
    assert len(names) == len(ENTRIES) - 1
    assert "interleaved" not in names
    assert "zb-v" not in [row.entry.name for row in rows(Setting(stages=3, microbatches=4))]


def test_the_page_is_current() -> None:
    """`make schedules` writes it."""
    text = (DOCS / "schedules.md").read_text(encoding="utf-8")
    command = text.split("`")[1]
    files = page(SHOWN, "schedules", command)
    assert files.pop("") == text
    assert {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "schedules").iterdir()} == files


def test_the_images_are_images_of_every_operation() -> None:
    files = page(SHOWN, "schedules", "bapipe schedules")
    for row in rows(SHOWN):
        root = ElementTree.fromstring(files[f"{row.entry.name}.svg"])
        shapes = [each for each in root.iter() if each.tag.endswith("rect") and each.get("class") != "ground"]
        drawn = len(row.simulation.operations.kind) + len(row.simulation.reductions)
        assert len(shapes) >= drawn if row.entry.name == "pipedream" else len(shapes) == drawn, row.entry.name
        assert f"schedules/{row.entry.name}.svg" in files[""]


def test_when_1f1b_so_beats_1f1b_and_by_how_much_memory() -> None:
    """An overlapped link of half the forward time, 16 micro-batches, 4 stages, judged by a replay of its own."""
    found = versus(Setting(stages=4, microbatches=16, transfer_s=0.5))
    plain, eager = (
        judge.judge(row.plan.request, [stage.layers for stage in row.plan.stages], row.entry.name, 16)
        for row in (found.plain, found.eager)
    )
    assert (found.plain.seconds, found.eager.seconds) == (plain.step_time_s, eager.step_time_s) == (71.0, 60.0)
    more = [b - a for a, b in zip(plain.peak_bytes, eager.peak_bytes, strict=True)]
    assert list(found.more_bytes) == more
    assert [size / 2**20 for size in more] == [3 * 32, 2 * 32 + 2 * 8, 32 + 8, 0]
    assert found.more_in_flight == (3, 2, 1, 0)
    text = (DOCS / "schedules.md").read_text(encoding="utf-8").replace("\n", " ")
    assert "1F1B-SO takes 60 s where 1F1B takes 71 s: it is 1.18× as fast" in text
    assert "96.0 MiB, 80.0 MiB, 40.0 MiB, 0 B more" in text
    assert "It is faster from 3 micro-batches on" in text


def test_from_how_many_micro_batches_on_1f1b_so_is_faster() -> None:
    setting = Setting(stages=4, transfer_s=0.5)
    assert fewest_microbatches(setting) == 3
    assert fewest_microbatches(Setting(stages=4)) is None
    for m in (1, 2, 3, 4):
        starts = {
            name: judge.pipeline_starts([1.0] * 4, [2.0] * 4, [0.5] * 3, [judge.order(name, s, 4, m) for s in range(4)])
            for name in ("1f1b", "1f1b-so")
        }
        ends = {name: max(start + 2.0 for stage in each for start in stage.values()) for name, each in starts.items()}
        assert (ends["1f1b-so"] < ends["1f1b"]) == (m >= 3)
