"""docs/fpga.md is what its code writes, and what it says of FBP-AS and of the four boards is so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.fpga.plausibility import doubtful_figures
from bapipe.faults import parse
from bapipe.problem import Cluster

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, written again; the clusters are not planned again."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "benchmarks.fpga_page", "--output", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", ["fpga.md", "fpga/fbp-as.svg"])
def test_the_page_is_up_to_date(written: Path, name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == (written / name).read_text(encoding="utf-8")


def test_the_board_of_ones_own_is_a_cluster_without_doubts(written: Path) -> None:
    text = (written / "fpga.md").read_text(encoding="utf-8")
    cluster = parse(Cluster, json.loads(text.split("```json\n")[1].split("```")[0]))
    assert list(doubtful_figures(cluster, ["mine"])) == []
    assert memory_limit_bytes(cluster, cluster.devices[0]) == 8 * 2**30


def test_the_formula_says_where_fbp_as_wins(written: Path) -> None:
    lines = (written / "fpga.md").read_text(encoding="utf-8").splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if " s | yes |" in line or " s | no |" in line
    ]
    assert len(cells) == 15
    assert all(wins == formula for _, _, _, wins, formula, _, _ in cells)
    assert {row[3] for row in cells} == {"yes", "no"}


def found() -> dict[str, list[dict[str, Any]]]:
    """The clusters found last."""
    return json.loads((DOCS / "fpga" / "clusters.json").read_text(encoding="utf-8"))


def test_a_layer_split_over_boards_is_never_slower_and_fits_where_the_whole_one_does_not() -> None:
    rows = {(row["model"], row["board"], row["batch"], row["link"]): row["step_s"] for row in found()["grid"]}
    whole = {key[1:]: step_s for key, step_s in rows.items() if key[0] == "vgg16"}
    assert all(rows["vgg16 split", *key] <= step_s * 1.001 for key, step_s in whole.items())
    assert max(step_s / rows["vgg16 split", *key] for key, step_s in whole.items()) > 1.2
    fits = {row["model"]: row["step_s"] is not None for row in found()["limited"] if row["limit_bytes"] == 512 * 2**20}
    assert fits == {"vgg16": False, "vgg16 split": True}


def test_boards_are_split_only_over_slow_links() -> None:
    split = [row for row in found()["grid"] if row["plan"].startswith("fbp-as")]
    assert split
    assert {row["link"] for row in split} == {"10 Gb/s"}


def test_somewhere_a_pipeline_is_faster_and_somewhere_it_needs_a_quarter_of_the_memory() -> None:
    rows = found()["grid"]
    assert {(row["model"], row["board"]) for row in rows} == {
        (model, board) for model in ("vgg16", "vgg16 split", "resnet50") for board in ("VCU118", "VCU129")
    }
    assert max(row["data_parallel_s"] / row["step_s"] for row in rows) >= 1.14
    assert max(row["data_parallel_at_once_bytes"] / row["bytes"] for row in rows) >= 4
