"""Emulated steps: what is conserved, where they equal the simulator, what faults do, and what energy they take."""

from __future__ import annotations

import pytest

from bapipe.emulation import DeadBoard, EmulationOptions, LossyLink, SlowBoard
from bapipe.emulation.emulate import emulate
from bapipe.problem import Link
from bapipe.simulator import simulate
from judges.boards import fpga
from judges.emulated import LINK, conservation_faults, plan_on

BLOCKING = Link(bandwidth_bytes_per_s=20_000.0, mode="blocking")
OVERLAPPED = Link(bandwidth_bytes_per_s=20_000.0)
BOARD = fpga(on_chip_bytes=2500, off_chip_bandwidth_bytes_per_s=50_000.0)
CASES = {
    "1F1B-AS": {"name": "1f1b"},
    "FBP-AS": {"name": "fbp-as"},
    "1F1B-SNO": {"name": "1f1b", "link": BLOCKING, "execution": "sync"},
    "1F1B-SO": {"name": "1f1b-so", "link": OVERLAPPED, "execution": "sync"},
    "GPipe": {"name": "gpipe"},
    "data parallel": {"name": "data-parallel", "microbatches": 12},
    "inference": {"name": "1f1b", "task": "inference"},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fifo", [None, 700])
def test_every_run_conserves_bytes_and_micro_batches(case: str, fifo: int | None) -> None:
    made = plan_on(BOARD.model_copy(update={"fifo_bytes": fifo}), **CASES[case])
    emulated = emulate(made)
    assert conservation_faults(made, emulated) == []
    assert emulated.report.step_time_s is not None


@pytest.mark.parametrize("case", ["1F1B-SNO", "1F1B-SO", "data parallel"])
def test_where_the_models_coincide_the_simulator_says_the_same(case: str) -> None:
    made = plan_on(**CASES[case])
    assert emulate(made).report.step_time_s == pytest.approx(simulate(made).step_time_s, rel=1e-9)


def test_over_links_of_one_chunk_the_streaming_schedules_coincide_too() -> None:
    """Also where both engines of a split board wait for its memory port."""
    stored = LINK.model_copy(update={"chunks": 1})
    for name in ("1f1b", "gpipe", "fbp-as"):
        made = plan_on(name=name, link=stored)
        assert emulate(made).report.step_time_s == pytest.approx(simulate(made).step_time_s, rel=1e-9)


def test_a_small_fifo_makes_boards_wait() -> None:
    slow = LINK.model_copy(update={"bandwidth_bytes_per_s": 4000.0})
    deep, shallow = (
        emulate(plan_on(BOARD.model_copy(update={"fifo_bytes": size}), link=slow)).report for size in (10**6, 400)
    )
    assert sum(board.stalled_s for board in shallow.boards) > sum(board.stalled_s for board in deep.boards)
    assert shallow.step_time_s >= deep.step_time_s


def test_engines_of_a_split_board_share_its_memory() -> None:
    """Half of the slices for each, and memory so slow that it decides: side by side is no faster than in turn."""
    starved = fpga(on_chip_bytes=0, off_chip_bandwidth_bytes_per_s=20_000.0)
    report = emulate(plan_on(starved, name="fbp-as", share=0.5)).report
    for board in report.boards:
        assert report.step_time_s >= (board.off_chip_traffic_bytes - 10_000) / 20_000.0
    assert any(board.stalled_s > 0 for board in report.boards)


def test_a_slow_board_slows_the_pipeline() -> None:
    made = plan_on()
    slow = emulate(made, EmulationOptions(slow_boards=(SlowBoard(device="d1", speed=0.5),))).report
    fast = emulate(made).report
    assert slow.step_time_s > 1.2 * fast.step_time_s
    assert slow.boards[1].busy_s > 1.9 * fast.boards[1].busy_s


def test_a_lossy_link_sends_again_and_arrives_all_the_same() -> None:
    made = plan_on()
    options = EmulationOptions(lossy_links=(LossyLink(devices=("d1", "d0"), loss=0.4),), seed=3)
    emulated = emulate(made, options)
    assert conservation_faults(made, emulated) == []
    resent = {(link.source, link.target): link.resent_bytes for link in emulated.report.links}
    assert resent["d0", "d1"] > 0 < resent["d1", "d0"]
    assert resent["d1", "d2"] == 0
    assert emulated.report.step_time_s >= emulate(made).report.step_time_s
    assert emulate(made, options).report == emulated.report, "one seed, one result"
    assert emulate(made, options.model_copy(update={"seed": 4})).report != emulated.report


def test_lost_gradients_lengthen_an_all_reduce_as_expected() -> None:
    made = plan_on(name="data-parallel", microbatches=12)
    options = EmulationOptions(lossy_links=(LossyLink(devices=("d0", "d1"), loss=0.5),))
    plain, lossy = emulate(made).simulation, emulate(made, options).simulation
    before = [each.end_s - each.start_s for each in plain.reductions]
    assert [each.end_s - each.start_s for each in lossy.reductions] == pytest.approx([2 * each for each in before])


def test_a_board_that_dies_loses_the_step() -> None:
    made = plan_on()
    whole = emulate(made).report.step_time_s
    assert whole is not None
    options = EmulationOptions(dead_boards=(DeadBoard(device="d2", at_s=whole / 2),))
    report = emulate(made, options).report
    assert report.step_time_s is None
    loss = report.loss
    assert loss is not None
    assert (loss.boards, loss.stages) == (("d2",), (2,))
    assert 0 < loss.backwards[0] < loss.backwards[1] == 12
    assert loss.forwards[0] >= loss.backwards[0]
    assert loss.microbatches[0] < loss.microbatches[1] == 4
    assert report.energy.total_j < emulate(made).report.energy.total_j


def test_a_board_that_dies_after_its_step_loses_nothing() -> None:
    options = EmulationOptions(dead_boards=(DeadBoard(device="d2", at_s=1e6),))
    assert emulate(plan_on(), options).report == emulate(plan_on()).report


def test_energy_is_the_sum_of_its_causes_and_boards() -> None:
    report = emulate(plan_on()).report
    causes = ("macs_j", "elementwise_j", "on_chip_j", "off_chip_j", "links_j", "static_j")
    assert report.energy.total_j == pytest.approx(sum(getattr(report.energy, cause) for cause in causes))
    assert report.energy.total_j == pytest.approx(sum(board.energy.total_j for board in report.boards))
    sent = sum(link.sent_bytes for link in report.links)
    assert report.energy.links_j == pytest.approx(80e-12 * sent)
    traffic = sum(board.off_chip_traffic_bytes for board in report.boards)
    assert report.energy.off_chip_j == pytest.approx(160e-12 * traffic)


def test_a_chip_that_holds_its_stage_moves_nothing_but_the_update() -> None:
    report = emulate(plan_on(fpga(on_chip_bytes=10**6, buffer_bytes=10**5))).report
    update = {"a": 288, "c": 576, "e": 288, "f": 512}
    layers = [("a",), ("c",), ("e", "f")]
    for board, names in zip(report.boards, layers, strict=True):
        parameters = sum(update[name] for name in names) * 4
        assert board.off_chip_traffic_bytes == 2 * (2 * parameters + 2 * parameters) - parameters
