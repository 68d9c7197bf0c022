"""Writes `docs/fpga.md` and its image: `python -m benchmarks.fpga_page` from the clusters found last, with `--search`
after planning them again (`docs/fpga/clusters.json`); `--output FOLDER` instead of docs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template

from bapipe.quantities import bytes_text, seconds_text
from benchmarks.fpga_clusters import Row, rows
from benchmarks.fpga_sweep import BACKWARD_S, CHUNKS, DEPTH, FORWARD_S, MICROBATCHES, STAGES, Point, points
from benchmarks.line_plot import Line, line_plot

DOCS = Path(__file__).parents[1] / "docs"
TEMPLATE = Path(__file__).with_name("fpga_page.md")
FOUND = DOCS / "fpga" / "clusters.json"


def main(arguments: Sequence[str]) -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fpga_page")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--output", type=Path, default=DOCS)
    wanted = parser.parse_args(arguments)
    if wanted.search:
        found = [asdict(row) for row in rows()]
        FOUND.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sweep = points()
    (wanted.output / "fpga").mkdir(parents=True, exist_ok=True)
    (wanted.output / "fpga" / "fbp-as.svg").write_text(plot(sweep), encoding="utf-8")
    (wanted.output / "fpga.md").write_text(page(sweep, known_rows()), encoding="utf-8")


def known_rows() -> list[Row]:
    """The clusters found last."""
    return [Row(**row) for row in json.loads(FOUND.read_text(encoding="utf-8"))]


def page(sweep: Sequence[Point], clusters: Sequence[Row]) -> str:
    """The page, with every figure that was found."""
    fastest = max(clusters, key=lambda row: row.data_parallel_s / row.step_s)
    at_once = max(clusters, key=lambda row: row.data_parallel_at_once_s / row.step_s)
    leanest = max(clusters, key=lambda row: row.data_parallel_at_once_bytes / row.bytes)
    over_gpipe = max(clusters, key=lambda row: row.gpipe_s / row.step_s)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        sweep=sweep_table(sweep),
        crossing=crossing_text(sweep),
        clusters=cluster_table(clusters),
        fastest=f"{_name(fastest)}: {fastest.data_parallel_s / fastest.step_s:.2f}×",
        at_once=f"{_name(at_once)}: {at_once.data_parallel_at_once_s / at_once.step_s:.2f}×",
        leanest=f"{_name(leanest)}: {leanest.data_parallel_at_once_bytes / leanest.bytes:.1f}×",
        over_gpipe=f"{_name(over_gpipe)}: {over_gpipe.gpipe_s / over_gpipe.step_s:.2f}×",
        chosen=f"{sum(row.plan.startswith('1f1b') for row in clusters)} of {len(clusters)}",
        stages=STAGES,
        microbatches=MICROBATCHES,
        chunks=CHUNKS,
        depth=DEPTH,
        forward=f"{FORWARD_S:g}",
        backward=f"{BACKWARD_S:g}",
    )


def sweep_table(sweep: Sequence[Point]) -> str:
    """A row a tensor time."""
    head = [
        "| tensor | 1F1B-AS | FBP-AS | FBP-AS wins | by formula | 1F1B-AS, no limit | FBP-AS, no limit |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(_sweep_row(point) for point in sweep)])


def _sweep_row(point: Point) -> str:
    seconds = (point.one_f_one_b_s, point.fbp_s)
    wins = "yes" if point.fbp_s < point.one_f_one_b_s else "no"
    formula = "yes" if point.formula_says_fbp else "no"
    cells = [f"{point.tensor_s:g} s", *(f"{each:.1f} s" for each in seconds), wins, formula]
    return f"| {' | '.join([*cells, f'{point.one_f_one_b_free_s:.1f} s', f'{point.fbp_free_s:.1f} s'])} |"


def crossing_text(sweep: Sequence[Point]) -> str:
    """From which tensor time on FBP-AS is faster, with small FIFOs and without limit."""
    bound = next(point.tensor_s for point in sweep if point.fbp_s < point.one_f_one_b_s)
    free = next(point.tensor_s for point in sweep if point.fbp_free_s < point.one_f_one_b_free_s)
    return f"from {bound:g} s on; without limit only from {free:g} s on, where the link itself is nearly full"


def plot(sweep: Sequence[Point]) -> str:
    """The image of the sweep."""
    lines = [
        Line(f"1F1B-AS, FIFOs of {DEPTH} chunks", "#c0392b", [(p.tensor_s, p.one_f_one_b_s) for p in sweep]),
        Line("1F1B-AS, no limit", "#e59866", [(p.tensor_s, p.one_f_one_b_free_s) for p in sweep]),
        Line("FBP-AS, either", "#2471a3", [(p.tensor_s, p.fbp_s) for p in sweep]),
    ]
    title = f"{STAGES} equal stages, {MICROBATCHES} micro-batches, F = {FORWARD_S:g} s, B = {BACKWARD_S:g} s"
    return line_plot(title, "seconds of a tensor on a link", "seconds of a step", lines, (0, 1, 2, 3, 4, 5, 6))


def cluster_table(clusters: Sequence[Row]) -> str:
    """A row a model, board and batch."""
    head = [
        "| model | boards | links | batch | plan | proof | step | over DP | over DP at once | over GPipe | memory | DP "
        "| DP at once | GPipe | less than DP at once | energy |",
        f"|{'---|' * 16}",
    ]
    return "\n".join([*head, *(_cluster_row(row) for row in clusters)])


def _cluster_row(row: Row) -> str:
    proof = "optimal" if row.status == "optimal" else "" if row.gap is None else f"gap {row.gap:.0%}"
    ratios = (row.data_parallel_s, row.data_parallel_at_once_s, row.gpipe_s)
    sizes = (row.bytes, row.data_parallel_bytes, row.data_parallel_at_once_bytes, row.gpipe_bytes)
    cells = [row.model, f"4 × {row.board}", row.link, str(row.batch), row.plan, proof, seconds_text(row.step_s)]
    cells += [f"{each / row.step_s:.2f}×" for each in ratios]
    cells += [bytes_text(each) for each in sizes]
    cells += [f"{row.data_parallel_at_once_bytes / row.bytes:.1f}×", f"{row.energy_j:.3g} J"]
    return f"| {' | '.join(cells)} |"


def _name(row: Row) -> str:
    return f"{row.model} on 4 × {row.board}, {row.link}, {row.batch} samples"


if __name__ == "__main__":
    main(sys.argv[1:])
