"""Emulated steps: what is conserved, where they equal the simulator, what faults do, and what energy they take."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.emulation import DeadBoard, EmulationOptions, LossyLink, SlowBoard
from bapipe.emulation.emulate import emulate
from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe.problem import Device, FpgaEnergy, Link
from bapipe.simulator import simulate
from judges.boards import fpga, linear, relu
from judges.emulated import LINK, conservation_faults, plan_on

BLOCKING = Link(bandwidth_bytes_per_s=20_000.0, mode="blocking")
OVERLAPPED = Link(bandwidth_bytes_per_s=20_000.0)
BOARD = fpga(on_chip_bytes=2500, off_chip_bandwidth_bytes_per_s=50_000.0)
CASES = {
    "1F1B-AS": {"name": "1f1b"},
    "FBP-AS": {"name": "fbp-as"},
    "FBP-AS, forwards ahead": {"name": "fbp-as", "share": 0.8, "microbatches": 12},
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


def test_a_split_board_hides_the_traffic_of_one_engine_behind_the_other() -> None:
    """Each stage computes for 1 s each way, and reads and writes weights for 1 s forward and 3 s backward: in one piece
    6 s for a micro-batch, side by side the 2 s and 3 s of the backward on half of the lanes. Nothing is sent.
    """
    layers, stages = [], [("a0", "b0"), ("a1", "b1"), ("a2", "b2")]
    for compute, memory in stages:
        layers.append(relu(compute, 1000, output_bytes_per_sample=0.0))
        layers.append(linear(memory, 10, 25, output_bytes_per_sample=0.0))
    board = fpga(on_chip_bytes=0, elementwise_lanes=1)
    whole, split = (
        emulate(plan_on(board, name=name, layers=layers, stages=stages, share=0.5, microbatches=12)).report.step_time_s
        for name in ("1f1b", "fbp-as")
    )
    update_s = 250 * 4 * 7 / 1000.0
    assert whole - update_s == pytest.approx((12 + 2) * 6.0)
    assert split - update_s < 0.95 * (whole - update_s)


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


def test_boards_that_stop_for_each_other_send_again_too() -> None:
    made = plan_on(**CASES["1F1B-SNO"])
    options = EmulationOptions(lossy_links=(LossyLink(devices=("d0", "d1"), loss=0.6),))
    plain, lossy = emulate(made).report, emulate(made, options)
    assert conservation_faults(made, lossy) == []
    assert sum(link.resent_bytes for link in lossy.report.links) > 0
    assert lossy.report.step_time_s > plain.step_time_s


def test_a_link_that_loses_nearly_all_is_emulated_at_once() -> None:
    options = EmulationOptions(lossy_links=(LossyLink(devices=("d0", "d1"), loss=1 - 1e-12),))
    assert emulate(plan_on(), options).report.step_time_s > 1e6


def test_chunks_are_sent_as_often_as_their_loss_says() -> None:
    """On average 1 / (1 - loss) times: 4 for three in four."""
    made = plan_on(link=LINK.model_copy(update={"chunks": 64}))
    options = EmulationOptions(lossy_links=(LossyLink(devices=("d0", "d1"), loss=0.75),))
    link = emulate(made, options).report.links[0]
    assert (link.sent_bytes + link.resent_bytes) / link.sent_bytes == pytest.approx(4, rel=0.15)


def test_a_dead_board_neither_sends_nor_receives() -> None:
    """What is in its FIFO, or on its way when it dies, does not arrive."""
    made = plan_on(link=LINK.model_copy(update={"bandwidth_bytes_per_s": 8000.0}))
    first = emulate(made).simulation.operations.end_s[0]
    emulated = emulate(made, EmulationOptions(dead_boards=(DeadBoard(device="d0", at_s=first),)))
    link = emulated.report.links[0]
    assert (link.source, link.target) == ("d0", "d1")
    assert 0 < link.received_bytes < link.sent_bytes
    assert max(emulated.flowed.left_s["link", "d0", "d1"]) <= first


def test_a_dead_board_stops_for_no_other() -> None:
    made = plan_on(**CASES["1F1B-SNO"])
    first = emulate(made).simulation.operations.end_s[0]
    report = emulate(made, EmulationOptions(dead_boards=(DeadBoard(device="d0", at_s=first),))).report
    assert report.links == ()
    assert report.loss.forwards[0] == 1


def test_only_boards_that_died_by_then_lose_the_step() -> None:
    made = plan_on()
    whole = emulate(made).report.step_time_s
    options = EmulationOptions(dead_boards=(DeadBoard(device="d1", at_s=whole / 2), DeadBoard(device="d2", at_s=1e6)))
    assert emulate(made, options).report.loss.boards == ("d1",)


def test_a_lost_step_updates_nothing() -> None:
    made = plan_on(**CASES["data parallel"])
    ends = [each.end_s for each in emulate(made).simulation.reductions]
    emulated = emulate(made, EmulationOptions(dead_boards=(DeadBoard(device="d1", at_s=ends[0] * 0.99),)))
    assert emulated.report.loss.boards == ("d1",)
    assert emulated.simulation.reductions == ()
    assert emulated.simulation.optimizer_end_s == emulated.simulation.optimizer_start_s


def test_orders_that_wait_for_each_other_are_no_death() -> None:
    made = plan_on(microbatches=2)
    orders = (("0F0", "0B0", "0F1", "0B1"), ("1F0", "1F1", "1B0", "1B1"), made.schedule.orders[2])
    custom = made.schedule.model_copy(update={"name": "custom", "orders": orders})
    options = EmulationOptions(dead_boards=(DeadBoard(device="d1", at_s=1e9),))
    with pytest.raises(InvalidInputError, match="waits forever"):
        emulate(made.model_copy(update={"schedule": custom}), options)


def split_backward(plan: Plan) -> Plan:
    """All input gradients where the backwards were, the weight gradients behind them."""
    orders = tuple(
        (*(op.replace("B", "I") for op in row), *(op.replace("B", "W") for op in row if "B" in op))
        for row in plan.schedule.orders
    )
    schedule = plan.schedule.model_copy(update={"name": "custom", "orders": orders})
    return plan.model_copy(update={"schedule": schedule})


def test_split_backwards_take_the_energy_of_both_parts() -> None:
    """On chips that hold all, so that more micro-batches in flight change no traffic."""
    made = plan_on(fpga(on_chip_bytes=10**6, buffer_bytes=10**5))
    whole, parts = emulate(made).report, emulate(split_backward(made)).report
    assert parts.energy.model_dump() == pytest.approx(whole.energy.model_dump())
    traffic = [board.off_chip_traffic_bytes for board in whole.boards]
    assert [board.off_chip_traffic_bytes for board in parts.boards] == pytest.approx(traffic)


@pytest.mark.parametrize("apart", [False, True])
def test_recomputed_layers_take_energy_again(apart: bool) -> None:
    """As operations of their own, or inside the backward: a forward of layer c more for each micro-batch."""
    made = plan_on(fpga(on_chip_bytes=10**6, buffer_bytes=10**5))
    stages = tuple(
        stage.model_copy(update={"recomputed_layers": ("c",)}) if stage.index == 1 else stage for stage in made.stages
    )
    again = made.model_copy(update={"stages": stages})
    if apart:
        row = [each for op in made.schedule.orders[1] for each in ([op.replace("B", "R"), op] if "B" in op else [op])]
        orders = (made.schedule.orders[0], tuple(row), made.schedule.orders[2])
        schedule = made.schedule.model_copy(update={"name": "custom", "orders": orders})
        again = again.model_copy(update={"schedule": schedule})
    macs_j = emulate(again).report.boards[1].energy.macs_j - emulate(made).report.boards[1].energy.macs_j
    assert macs_j == pytest.approx(12 * 16 * 9 * 8 * 8 * 4.6e-12)


def test_a_reduction_waits_for_the_slowest_board() -> None:
    """Gradients of all layers are one bucket, complete when every board has done its last backward."""
    made = plan_on(**CASES["data parallel"])
    simulation = emulate(made, EmulationOptions(slow_boards=(SlowBoard(device="d1", speed=0.25),))).simulation
    operations = simulation.operations
    last_s = [max(e for e, d in zip(operations.end_s, operations.device, strict=True) if d == n) for n in range(3)]
    (reduction,) = simulation.reductions
    assert last_s[0] < last_s[1] <= reduction.start_s + 1e-9


def test_losses_of_a_ring_are_sent_again() -> None:
    made = plan_on(**CASES["data parallel"])
    options = EmulationOptions(lossy_links=(LossyLink(devices=("d0", "d1"), loss=0.5),))
    for link in emulate(made, options).report.links:
        lossy = {link.source, link.target} == {"d0", "d1"}
        assert link.resent_bytes == pytest.approx(link.sent_bytes if lossy else 0.0)


def test_the_update_goes_at_the_rate_of_the_memory_off_chip() -> None:
    """At its efficiency, and slower on a slow board."""
    made = plan_on(BOARD.model_copy(update={"off_chip_efficiency": 0.5}))
    options = EmulationOptions(slow_boards=(SlowBoard(device="d1", speed=0.25),))
    for slow, speed in ((None, 1.0), (options, 0.25)):
        simulation = emulate(made, slow).simulation
        took = simulation.optimizer_end_s[1] - simulation.optimizer_start_s[1]
        assert took == pytest.approx(576 * 4 * 7 / (25_000.0 * speed)), "8 bytes of state for each of 4"


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"slow_boards": [{"device": "d3", "speed": 0.5}]}, "board d3 has no stage"),
        ({"dead_boards": [{"device": "d3", "at_s": 0.5}]}, "board d3 has no stage"),
        ({"lossy_links": [{"devices": ["d0", "d2"], "loss": 0.5}]}, "nothing passes between d0 and d2"),
    ],
)
def test_faults_that_change_nothing_are_said(faults: dict[str, Any], said: str) -> None:
    made = plan_on()
    cluster = made.request.cluster.model_copy(
        update={"devices": (*made.request.cluster.devices, Device(id="d3", kind="board"))}
    )
    schedule = made.schedule.model_copy(update={"orders": (*made.schedule.orders, ())})
    made = made.model_copy(
        update={"request": made.request.model_copy(update={"cluster": cluster}), "schedule": schedule}
    )
    assert any(said in text for text in emulate(made, EmulationOptions.model_validate(faults)).report.warnings)


def test_figures_of_another_unit_are_doubted() -> None:
    board = fpga(clock_hz=300.0, off_chip_bandwidth_bytes_per_s=38.4, off_chip_bytes=10**9, on_chip_bytes=10**6)
    made = plan_on(board, link=LINK.model_copy(update={"bandwidth_bytes_per_s": 12.5, "latency_s": 1.0}))
    doubted = [text for text in emulate(made).report.warnings if " is in " in text or "a link has" in text]
    assert [text.split(" of ")[0] for text in doubted[:2]] == [
        "board has a clock_hz",
        "board has a off_chip_bandwidth_bytes_per_s",
    ]
    assert len(doubted) == 4
    whole = fpga(clock_hz=3e8, off_chip_bandwidth_bytes_per_s=4e10, off_chip_bytes=2**32, on_chip_bytes=2**25,
                 memory_block_bytes=36 * 1024)  # fmt: skip
    fast = LINK.model_copy(update={"bandwidth_bytes_per_s": 1e9})
    assert emulate(plan_on(whole, link=fast)).report.warnings == made.warnings


def test_arithmetic_without_a_price_is_said() -> None:
    free = BOARD.model_copy(update={"energy": FpgaEnergy(mac_j={"fp16": 1e-12})})
    report = emulate(plan_on(free)).report
    assert report.energy.macs_j == 0
    assert any("no energy.mac_j for fp32" in text for text in report.warnings)


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
