"""Four boards against what is done without a planner: ResNet-50, and VGG-16 whole and with its first linear layer
split, on VCU118 and VCU129.

Planned, emulated and compared; `python -m benchmarks.fpga_page --search all` makes `docs/fpga.md` of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from bapipe.assembly import Assembler, Draft
from bapipe.baselines import measure_baselines
from bapipe.candidates import Candidate
from bapipe.emulation.emulate import emulate
from bapipe.examples import load_example
from bapipe.examples.vgg16 import vgg16
from bapipe.plan import Plan
from bapipe.planner import plan
from bapipe.precision import at_precision
from bapipe.presets.boards import board_cluster
from bapipe.presets.links import QSFP28
from bapipe.problem import Links, ModelProfile, PlanRequest, ScheduleName

MODELS = ("resnet50", "vgg16", "vgg16 split")
SPLIT_PARTS = 8
"""Of the first linear layer of `vgg16 split`; it is set beside what is done without a planner on the whole one."""

LINKS = {"100 Gb/s": QSFP28, "10 Gb/s": QSFP28.model_copy(update={"bandwidth_bytes_per_s": 1.25e9})}
BOARDS = ("VCU118", "VCU129")
CASES = ((8, "100 Gb/s"), (32, "100 Gb/s"), (128, "100 Gb/s"), (32, "10 Gb/s"))
"""Samples of a mini-batch, and the rate of a link."""

NUM_BOARDS = 4
MICROBATCH_SIZES = (1, 2, 4, 8)
SCHEDULES: tuple[ScheduleName, ...] = ("1f1b", "fbp-as")
TIME_LIMIT_S = 120.0
"""Of a search; most are proven in a few seconds."""

LIMITS_MIB = (768, 512, 400)
LIMITED_CASE = (32, "100 Gb/s")
"""What VGG-16, whole and split, is also planned for: boards with less memory."""

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


@dataclass(frozen=True)
class LimitedRow:
    """VGG-16 on four boards of so much memory each; `step_s`, `bytes` None: nothing fits."""

    model: str
    board: str
    limit_bytes: int
    plan: str
    status: str
    step_s: float | None
    bytes: float | None


def request_of(model: str, board: str, batch: int, link: str) -> PlanRequest:
    """In half precision, momentum in 32 bits."""
    boards = board_cluster(board, NUM_BOARDS)
    return PlanRequest(
        profile=at_precision(_profile(model), "fp16"),
        cluster=boards.model_copy(update={"links": Links(within_host=LINKS[link])}),
        batch_size=batch,
        dtype="fp16",
        cuts="topological-order",
        microbatch_sizes=MICROBATCH_SIZES,
        optimizer_bytes_per_parameter=OPTIMIZER_BYTES,
        idle_devices=False,
    )


def _profile(model: str) -> ModelProfile:
    return vgg16(SPLIT_PARTS) if model == "vgg16 split" else load_example(model)


def rows(known: Sequence[Row] = ()) -> Iterator[Row]:
    """The grid; a row that is known and proven is not planned again."""
    proven = {(row.model, row.board, row.batch, row.link): row for row in known if row.status == "optimal"}
    for model, board, (batch, link) in product(MODELS, BOARDS, CASES):
        yield proven.get((model, board, batch, link)) or _row(model, board, batch, link)


def limited_rows(known: Sequence[LimitedRow] = ()) -> Iterator[LimitedRow]:
    """VGG-16, whole and split, on boards with less memory; a row that is known and proven is not planned again."""
    proven = {(row.model, row.board, row.limit_bytes): row for row in known if row.status != "feasible"}
    for board, limit, model in product(BOARDS, LIMITS_MIB, ("vgg16", "vgg16 split")):
        yield proven.get((model, board, limit * 2**20)) or _limited_row(model, board, limit * 2**20)


def _row(model: str, board: str, batch: int, link: str) -> Row:
    found = _planned(request_of(model, board, batch, link))
    assert found.prediction is not None
    report = emulate(found).report
    whole = request_of(model.removesuffix(" split"), board, batch, link)
    assembler = Assembler(whole)
    drafts = {baseline.name: draft for baseline, draft in measure_baselines(whole, assembler)}
    at_once = assembler.data_parallel(Candidate("data-parallel", batch // NUM_BOARDS, NUM_BOARDS, NUM_BOARDS))
    accumulated, gpipe = _there(drafts["data-parallel"]), _there(drafts["gpipe-equal-layers"])
    return Row(
        model=model,
        board=board,
        batch=batch,
        link=link,
        plan=_plan_text(found),
        status=found.status,
        gap=found.proof.gap,
        step_s=report.step_time_s or 0.0,
        predicted_s=found.prediction.step_time_s,
        energy_j=report.energy.total_j,
        data_parallel_s=accumulated.simulation.step_time_s,
        data_parallel_at_once_s=at_once.simulation.step_time_s,
        gpipe_s=gpipe.simulation.step_time_s,
        bytes=max(board.off_chip_peak_bytes for board in report.boards),
        data_parallel_bytes=max(accumulated.simulation.peak_memory_bytes),
        data_parallel_at_once_bytes=max(at_once.simulation.peak_memory_bytes),
        gpipe_bytes=max(gpipe.simulation.peak_memory_bytes),
    )


def _limited_row(model: str, board: str, limit_bytes: int) -> LimitedRow:
    request = request_of(model, board, *LIMITED_CASE)
    devices = tuple(device.model_copy(update={"memory_bytes": limit_bytes}) for device in request.cluster.devices)
    found = _planned(request.model_copy(update={"cluster": request.cluster.model_copy(update={"devices": devices})}))
    if found.schedule is None:
        return LimitedRow(model, board, limit_bytes, "", found.status, None, None)
    report = emulate(found).report
    peak = max(board.off_chip_peak_bytes for board in report.boards)
    return LimitedRow(model, board, limit_bytes, _plan_text(found), found.status, report.step_time_s, peak)


def _planned(request: PlanRequest) -> Plan:
    return plan(request.model_copy(update={"schedules": SCHEDULES, "time_limit_s": TIME_LIMIT_S}))


def _plan_text(found: Plan) -> str:
    assert found.schedule is not None
    return f"{found.schedule.name}, {found.schedule.num_microbatches} × {found.schedule.microbatch_size}"


def _there(draft: Draft | None) -> Draft:
    assert draft is not None
    return draft
