"""Writes `docs/fpga.md` and its image: `python -m benchmarks.fpga_page` from the clusters found last, with `--search
all` after planning them again (`docs/fpga/clusters.json`), with `--search unproven` those that were not proven in time;
`--output FOLDER` instead of docs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import TypeVar

from bapipe.quantities import bytes_text, seconds_text
from benchmarks.fpga_clusters import LIMITED_CASE, SPLIT_PARTS, LimitedRow, Row, limited_rows, rows
from benchmarks.fpga_sweep import BACKWARD_S, CHUNKS, DEPTH, FORWARD_S, MICROBATCHES, STAGES, Point, points
from benchmarks.line_plot import Line, line_plot

DOCS = Path(__file__).parents[1] / "docs"
TEMPLATE = Path(__file__).with_name("fpga_page.md")
FOUND = DOCS / "fpga" / "clusters.json"
Each = TypeVar("Each", Row, LimitedRow)


def main(arguments: Sequence[str]) -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fpga_page")
    parser.add_argument("--search", choices=("all", "unproven"), default=None)
    parser.add_argument("--output", type=Path, default=DOCS)
    wanted = parser.parse_args(arguments)
    if wanted.search:
        known = Found([], []) if wanted.search == "all" else Found.read()
        Found(_told(rows(known.grid)), _told(limited_rows(known.limited))).write()
    sweep = points()
    (wanted.output / "fpga").mkdir(parents=True, exist_ok=True)
    (wanted.output / "fpga" / "fbp-as.svg").write_text(plot(sweep), encoding="utf-8")
    found = Found.read()
    (wanted.output / "fpga.md").write_text(page(sweep, found.grid, found.limited), encoding="utf-8")


@dataclass(frozen=True)
class Found:
    """The clusters found last."""

    grid: list[Row]
    limited: list[LimitedRow]

    @classmethod
    def read(cls) -> Found:
        """As they were written."""
        known = json.loads(FOUND.read_text(encoding="utf-8"))
        return cls([Row(**row) for row in known["grid"]], [LimitedRow(**row) for row in known["limited"]])

    def write(self) -> None:
        """For the page, and for a search that goes on."""
        FOUND.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def _told(made: Iterable[Each]) -> list[Each]:
    found = []
    for row in made:
        print(row, file=sys.stderr, flush=True)
        found.append(row)
    return found


def page(sweep: Sequence[Point], clusters: Sequence[Row], limited: Sequence[LimitedRow]) -> str:
    """The page, with every figure that was found."""
    fastest = max(clusters, key=lambda row: row.data_parallel_s / row.step_s)
    at_once = max(clusters, key=lambda row: row.data_parallel_at_once_s / row.step_s)
    leanest = max(clusters, key=lambda row: row.data_parallel_at_once_bytes / row.bytes)
    over_gpipe = max(clusters, key=lambda row: row.gpipe_s / row.step_s)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        sweep=sweep_table(sweep),
        crossing=crossing_text(sweep),
        clusters=cluster_table(clusters),
        splitting=splitting_table(clusters),
        limited=limited_table(limited, clusters),
        parts=SPLIT_PARTS,
        optimal=f"{sum(row.status == 'optimal' for row in clusters)} of {len(clusters)}",
        fastest=f"{_name(fastest)}: {fastest.data_parallel_s / fastest.step_s:.2f}×",
        at_once=f"{_name(at_once)}: {at_once.data_parallel_at_once_s / at_once.step_s:.2f}×",
        leanest=f"{_name(leanest)}: {leanest.data_parallel_at_once_bytes / leanest.bytes:.1f}×",
        over_gpipe=f"{_name(over_gpipe)}: {over_gpipe.gpipe_s / over_gpipe.step_s:.2f}×",
        split_boards="; ".join(_name(row) for row in clusters if row.plan.startswith("fbp-as")),
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


def splitting_table(clusters: Sequence[Row]) -> str:
    """What splitting the first linear layer brings, a row a board, batch and link."""
    head = [
        "| boards | links | batch | step, whole | step, split | | memory, whole | memory, split | |",
        f"|{'---|' * 9}",
    ]
    whole, split = ([row for row in clusters if row.model == model] for model in ("vgg16", "vgg16 split"))
    return "\n".join([*head, *map(_splitting_row, whole, split)])


def _splitting_row(whole: Row, split: Row) -> str:
    cells = [f"4 × {whole.board}", whole.link, str(whole.batch), seconds_text(whole.step_s), seconds_text(split.step_s)]
    cells += [f"{whole.step_s / split.step_s:.2f}×", bytes_text(whole.bytes), bytes_text(split.bytes)]
    return f"| {' | '.join([*cells, f'{whole.bytes / split.bytes:.2f}×'])} |"


def limited_table(limited: Sequence[LimitedRow], clusters: Sequence[Row]) -> str:
    """A row a board, limit and network, beside data parallelism of the whole network without a limit."""
    head = ["| network | boards | limit | plan | proof | step | over DP | memory | less than DP |", f"|{'---|' * 9}"]
    whole = {row.board: row for row in clusters if (row.model, row.batch, row.link) == ("vgg16", *LIMITED_CASE)}
    return "\n".join([*head, *(_limited_row(row, whole[row.board]) for row in limited)])


def _limited_row(row: LimitedRow, whole: Row) -> str:
    cells = [row.model, f"4 × {row.board}", bytes_text(row.limit_bytes), row.plan or "nothing fits", row.status]
    if row.step_s is None or row.bytes is None:
        cells += [""] * 4
    else:
        cells += [seconds_text(row.step_s), f"{whole.data_parallel_s / row.step_s:.2f}×"]
        cells += [bytes_text(row.bytes), f"{whole.data_parallel_bytes / row.bytes:.1f}×"]
    return f"| {' | '.join(cells)} |"


def _name(row: Row) -> str:
    return f"{row.model} on 4 × {row.board}, {row.link}, {row.batch} samples"


if __name__ == "__main__":
    main(sys.argv[1:])
