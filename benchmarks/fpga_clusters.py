"""Four boards against what is done without a planner: VGG-16 and ResNet-50 on VCU118 and VCU129.

`python -m benchmarks.fpga_clusters FILE [MODEL:BOARD...]` plans, emulates and compares, and writes what it found as
JSON; `benchmarks.fpga_page` makes `docs/fpga.md` of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from bapipe.assembly import Assembler, Draft
from bapipe.baselines import measure_baselines
from bapipe.candidates import Candidate
from bapipe.emulation.emulate import emulate
from bapipe.examples import load_example
from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.precision import at_precision
from bapipe.presets.boards import board_cluster
from bapipe.presets.links import QSFP28
from bapipe.problem import Links, PlanRequest, ScheduleName

MODELS = ("resnet50", "vgg16")
LINKS = {"100 Gb/s": QSFP28, "10 Gb/s": QSFP28.model_copy(update={"bandwidth_bytes_per_s": 1.25e9})}
BOARDS = ("VCU118", "VCU129")
CASES = ((8, "100 Gb/s"), (32, "100 Gb/s"), (128, "100 Gb/s"), (32, "10 Gb/s"))
"""Samples of a mini-batch, and the rate of a link."""

NUM_BOARDS = 4
MICROBATCH_SIZES = (1, 2, 4, 8)
SEARCHED_SIZES = {"resnet50": (1, 2), "vgg16": (8,)}
"""Of the pipelines; the baselines choose among all."""

TIME_LIMITS_S: dict[ScheduleName, float] = {"1f1b": 60.0, "fbp-as": 8.0}
"""Of the search with each schedule; the better plan is taken."""


OPTIMIZER_BYTES = 4


@dataclass(frozen=True)
class Row:
    """One model on four boards: seconds of a step, bytes of the fullest board, and how the best plan looks."""

    model: str
    board: str
    batch: int
    link: str
    plan: str
    status: str
    gap: float | None
    step_s: float
    predicted_s: float
    energy_j: float
    data_parallel_s: float
    data_parallel_at_once_s: float
    gpipe_s: float
    bytes: float
    data_parallel_bytes: float
    data_parallel_at_once_bytes: float
    gpipe_bytes: float


def request_of(model: str, board: str, batch: int, link: str) -> PlanRequest:
    """In half precision, momentum in 32 bits."""
    boards = board_cluster(board, NUM_BOARDS)
    return PlanRequest(
        profile=at_precision(load_example(model), "fp16"),
        cluster=boards.model_copy(update={"links": Links(within_host=LINKS[link])}),
        batch_size=batch,
        dtype="fp16",
        cuts="topological-order",
        microbatch_sizes=MICROBATCH_SIZES,
        optimizer_bytes_per_parameter=OPTIMIZER_BYTES,
        idle_devices=False,
    )


def rows(wanted: Sequence[str] = ()) -> Iterator[Row]:
    """The grid, or what is wanted of it, as model:board."""
    for model, board, (batch, link) in product(MODELS, BOARDS, CASES):
        if wanted and f"{model}:{board}" not in wanted:
            continue
        yield _row(model, board, batch, link)


def _row(model: str, board: str, batch: int, link: str) -> Row:
    request = request_of(model, board, batch, link)
    found = min((_planned(request, name) for name in TIME_LIMITS_S), key=_step_s)
    assert found.schedule is not None
    report = emulate(found).report
    assembler = Assembler(request)
    drafts = {baseline.name: draft for baseline, draft in measure_baselines(request, assembler)}
    at_once = assembler.data_parallel(Candidate("data-parallel", batch // NUM_BOARDS, NUM_BOARDS, NUM_BOARDS))
    accumulated, gpipe = _there(drafts["data-parallel"]), _there(drafts["gpipe-equal-layers"])
    schedule = found.schedule
    return Row(
        model=model,
        board=board,
        batch=batch,
        link=link,
        plan=f"{schedule.name}, {schedule.num_microbatches} × {schedule.microbatch_size}",
        status=found.status,
        gap=found.proof.gap,
        step_s=report.step_time_s or 0.0,
        predicted_s=_step_s(found),
        energy_j=report.energy.total_j,
        data_parallel_s=accumulated.simulation.step_time_s,
        data_parallel_at_once_s=at_once.simulation.step_time_s,
        gpipe_s=gpipe.simulation.step_time_s,
        bytes=max(board.off_chip_peak_bytes for board in report.boards),
        data_parallel_bytes=max(accumulated.simulation.peak_memory_bytes),
        data_parallel_at_once_bytes=max(at_once.simulation.peak_memory_bytes),
        gpipe_bytes=max(gpipe.simulation.peak_memory_bytes),
    )


def _planned(request: PlanRequest, schedule: ScheduleName) -> Plan:
    given = {
        "schedules": (schedule,),
        "microbatch_sizes": SEARCHED_SIZES[request.profile.name],
        "time_limit_s": TIME_LIMITS_S[schedule],
    }
    return plan(request.model_copy(update=given))


def _step_s(found: Plan) -> float:
    assert found.prediction is not None
    return found.prediction.step_time_s


def _there(draft: Draft | None) -> Draft:
    assert draft is not None
    return draft


def main(path: str, wanted: Sequence[str]) -> None:
    """Writes the rows, and prints each as it is found."""
    found = []
    for row in rows(wanted):
        found.append(asdict(row))
        print(row, flush=True)
    Path(path).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
