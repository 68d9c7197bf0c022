"""Plans on FPGAs: stages take what their residency makes of them, whichever way they are replayed."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.cost.fpga.stage import Setting
from bapipe.cost.fpga.table import FpgaTable
from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe.problem import Cluster, Device, Layer, LayerTime, Link, Links
from bapipe.simulator import simulate
from bapipe.simulator.event_simulation import simulate_events
from judges.boards import convolution, fpga, linear, relu, request
from judges.instances import make_plan

LAYERS = [convolution("a", 4, 8, 16), relu("b", 128), convolution("c", 8, 8, 16), linear("d", 128, 8)]
STAGES = [("a", "b"), ("c", "d")]
BOARD = fpga(on_chip_bytes=2500, off_chip_bandwidth_bytes_per_s=1e6)


def plan_of(mode: str = "overlapped", share: float | None = None, **options: Any) -> Plan:
    link = Link.model_validate({"bandwidth_bytes_per_s": 1e6, "mode": mode})
    asked = request(LAYERS, BOARD, 2, **options)
    cluster = asked.cluster.model_copy(update={"links": Links(within_host=link)})
    made = make_plan(asked.model_copy(update={"cluster": cluster}), STAGES, "1f1b", 4)
    if share is None:
        return made
    split = tuple(stage.model_copy(update={"forward_share": share}) for stage in made.stages)
    return made.model_copy(update={"stages": split})


def test_stages_take_the_time_of_their_residency() -> None:
    """In flight are 2 micro-batches in front and 1 behind; what is in flight on chip takes room."""
    made = plan_of()
    table, devices = FpgaTable(made.request, 2), made.request.cluster.devices
    cost = simulate(made).cost
    for number, (received, in_flight) in enumerate(((0.0, 2), (2 * 512.0, 1))):
        found = table.stage(STAGES[number], devices[number], received, Setting(in_flight))
        assert cost.stages[number].forward_s == pytest.approx(sum(each[0] for each in found.seconds))
        assert cost.stages[number].backward_s == pytest.approx(sum(each[1] + each[2] for each in found.seconds))


def test_the_sweep_and_the_events_agree_on_boards() -> None:
    made = plan_of()
    swept, stepped = simulate(made), simulate_events(made, made.schedule)
    assert stepped.operations.start_s == pytest.approx(swept.operations.start_s)
    assert stepped.operations.end_s == pytest.approx(swept.operations.end_s)
    assert stepped.step_time_s == pytest.approx(swept.step_time_s)


def test_a_streaming_link_of_one_chunk_stores_and_forwards() -> None:
    assert simulate(plan_of("streaming")).step_time_s == pytest.approx(simulate(plan_of()).step_time_s)


def test_engines_of_a_split_board_take_what_their_slices_do() -> None:
    """Half of the slices, and the whole of what is on the chip: twice the compute."""
    made = plan_of("streaming", 0.5)
    found = FpgaTable(made.request, 2).stage(STAGES[0], made.request.cluster.devices[0], 0.0, Setting(3, 0.5))
    operations = simulate(made).operations
    rows = zip(operations.device, operations.kind, operations.start_s, operations.end_s, strict=True)
    lengths = {kind: end - start for device, kind, start, end in rows if device == 0}
    assert lengths["F"] == pytest.approx(sum(each[0] for each in found.seconds))
    assert lengths["B"] == pytest.approx(sum(each[1] + each[2] for each in found.seconds))


def test_data_parallelism_holds_the_whole_model_on_every_board() -> None:
    asked = request(LAYERS, BOARD, 2)
    made = make_plan(asked, [("a", "b", "c", "d")], "data-parallel", 8)
    found = FpgaTable(asked, 1).stage(["a", "b", "c", "d"], asked.cluster.devices[0], 0.0, Setting())
    assert simulate(made).cost.stages[0].forward_s == pytest.approx(sum(each[0] for each in found.seconds))


def test_recomputed_layers_take_their_forward_again() -> None:
    made = plan_of()
    again = tuple(
        stage.model_copy(update={"recomputed_layers": ("c",)}) if stage.index else stage for stage in made.stages
    )
    stage = simulate(made.model_copy(update={"stages": again})).cost.stages[1].replicas[0]
    assert 0 < stage.recompute_s < stage.forward_s


def test_times_that_were_measured_on_a_board_are_taken_as_they_are() -> None:
    time = LayerTime(device_kind="board", microbatch_size=2, forward_s=1.0, backward_s=2.0)
    measured = [layer.model_copy(update={"times": (time,)}) for layer in LAYERS]
    made = make_plan(request(measured, BOARD, 2), STAGES, "1f1b", 4)
    assert [stage.forward_s for stage in simulate(made).cost.stages] == [2.0, 2.0]


def test_a_board_needs_shapes_and_other_devices_do_not() -> None:
    unknown = [*LAYERS[:3], Layer(id="d", kind="FFT")]
    with pytest.raises(InvalidInputError, match=r"layer 'd' \(kind 'FFT'\) has no operators"):
        make_plan(request(unknown, BOARD, 2), STAGES, "1f1b", 4)
    plain = Cluster.model_validate({"kinds": [{"name": "reference"}], "devices": [{"id": "d0", "kind": "reference"}]})
    on_other = make_plan(request(unknown, BOARD, cluster=plain), [("a", "b", "c", "d")], "1f1b", 4)
    assert simulate(on_other).step_time_s == 0.0


def test_a_slow_board_takes_longer_by_its_speed() -> None:
    made = plan_of()
    devices = (Device(id="d0", kind="board", speed=0.5), made.request.cluster.devices[1])
    cluster = made.request.cluster.model_copy(update={"devices": devices})
    slow = made.model_copy(update={"request": made.request.model_copy(update={"cluster": cluster})})
    before, after = simulate(made).cost.stages[0], simulate(slow).cost.stages[0]
    assert after.forward_s == pytest.approx(2 * before.forward_s)
    assert after.backward_s == pytest.approx(2 * before.backward_s)
