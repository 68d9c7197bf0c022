"""Boards, plans and faults that cannot be: each is refused with what, where and what to change."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.emulation import EmulationOptions
from bapipe.emulation.emulate import emulate
from bapipe.errors import InvalidInputError
from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe.problem import Fpga, Layer, LayerTime, ModelProfile
from judges.boards import fpga
from judges.emulated import LAYERS, LINK, plan_on
from judges.instances import even_request, make_plan

FIGURES = fpga().model_dump()


@pytest.mark.parametrize(
    ("figures", "code", "pointer"),
    [
        ({"dsp_slices": 0}, "too_small", "/dsp_slices"),
        ({"clock_hz": 0.0}, "too_small", "/clock_hz"),
        ({"off_chip_bandwidth_bytes_per_s": 0.0}, "too_small", "/off_chip_bandwidth_bytes_per_s"),
        ({"fifo_bytes": 0}, "too_small", "/fifo_bytes"),
        ({"memory_block_bytes": 0}, "too_small", "/memory_block_bytes"),
        ({"input_lanes": 0}, "too_small", "/input_lanes"),
        ({"off_chip_efficiency": 1.5}, "too_large", "/off_chip_efficiency"),
        ({"efficiency": {"convolution": 0.0}}, "too_small", "/efficiency/convolution"),
        ({"efficiency": {"fft": 0.5}}, "unknown_value", "/efficiency/fft"),
        ({"macs_per_dsp": {"fp32": -1.0}}, "too_small", "/macs_per_dsp/fp32"),
        ({"buffer_bytes": 500, "on_chip_bytes": 400}, "too_large", "/buffer_bytes"),
        ({"energy": {"static_w": -1.0}}, "too_small", "/energy/static_w"),
        ({"memory_block_bytes": 1, "on_chip_bytes": 10**6}, "too_large", "/on_chip_bytes"),
    ],
)
def test_boards(figures: dict[str, Any], code: str, pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(Fpga, FIGURES | figures)
    assert [(fault.code, fault.pointer) for fault in caught.value.faults] == [(code, pointer)]


def refused(plan: Plan, options: EmulationOptions | None = None) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidInputError) as caught:
        emulate(plan, options)
    return [(fault.code, fault.pointer, fault.detail) for fault in caught.value.faults]


def test_a_fifo_that_holds_no_chunk() -> None:
    made = plan_on(fpga(on_chip_bytes=2500, fifo_bytes=100))
    code, pointer, detail = refused(made)[0]
    assert (code, pointer) == ("fifo_too_small", "/request/cluster/kinds/0/fpga/fifo_bytes")
    assert "100 bytes holds no chunk of 384 bytes" in detail


def test_a_fifo_that_holds_no_number() -> None:
    code, pointer, detail = refused(plan_on(fpga(on_chip_bytes=2500, fifo_bytes=3)))[0]
    assert (code, pointer) == ("fifo_too_small", "/request/cluster/kinds/0/fpga/fifo_bytes")
    assert "3 bytes holds no number of 4 bytes" in detail


def test_memory_off_chip_is_that_of_the_board_where_the_kind_names_none() -> None:
    made = plan_on()
    kind = made.request.cluster.kinds[0]
    small = kind.model_copy(
        update={"memory_bytes": None, "fpga": kind.fpga.model_copy(update={"off_chip_bytes": 5000})}
    )
    cluster = made.request.cluster.model_copy(update={"kinds": (small,)})
    faults = refused(made.model_copy(update={"request": made.request.model_copy(update={"cluster": cluster})}))
    assert {code for code, _, _ in faults} == {"out_of_memory"}


def test_more_than_is_emulated_has_a_limit() -> None:
    ((code, pointer, detail),) = refused(plan_on(link=LINK.model_copy(update={"chunks": 10**9})))
    assert (code, pointer) == ("too_large", "/request/cluster/links")
    assert "fewer chunks" in detail
    made = plan_on()
    assert made.schedule is not None
    orders = (("0F0",) * (2**20 + 1), *made.schedule.orders[1:])
    faults = refused(made.model_copy(update={"schedule": made.schedule.model_copy(update={"orders": orders})}))
    assert ("too_large", "/schedule/orders") in [(code, pointer) for code, pointer, _ in faults]


def test_a_stage_over_the_memory_off_chip() -> None:
    made = plan_on()
    kind = made.request.cluster.kinds[0].model_copy(update={"memory_bytes": 5000})
    small = made.request.cluster.model_copy(update={"kinds": (kind,)})
    over = made.model_copy(update={"request": made.request.model_copy(update={"cluster": small})})
    faults = refused(over)
    assert [(code, pointer) for code, pointer, _ in faults] == [
        ("out_of_memory", f"/stages/{stage}/devices") for stage in range(3)
    ]
    assert "board 'd0', whose memory off chip has 5000" in faults[0][2]


def test_a_layer_that_does_not_say_what_it_computes() -> None:
    made = plan_on()
    unknown = [*LAYERS[:5], Layer(id="f", kind="FFT")]
    profile = ModelProfile(name="chain", layers=tuple(unknown))
    ((code, pointer, detail),) = refused(
        made.model_copy(update={"request": made.request.model_copy(update={"profile": profile})})
    )
    assert (code, pointer) == ("missing_shape", "/request/profile/layers/5/operators")
    assert "'FFT'" in detail


def test_numbers_that_the_slices_cannot_compute_with() -> None:
    made = plan_on()
    ((code, pointer, _),) = refused(
        made.model_copy(update={"request": made.request.model_copy(update={"dtype": "bf16"})})
    )
    assert (code, pointer) == ("missing_rate", "/request/dtype")


def test_devices_that_are_no_boards() -> None:
    made = make_plan(even_request(2, 2), [["l0"], ["l1"]], "1f1b", 2)
    ((code, pointer, detail),) = refused(made)
    assert (code, pointer) == ("not_an_fpga", "/request/cluster/kinds/0/fpga")
    assert "simulate the plan instead" in detail


def test_times_that_were_measured() -> None:
    time = LayerTime(device_kind="board", microbatch_size=1, forward_s=1.0, backward_s=2.0)
    made = plan_on(layers=[layer.model_copy(update={"times": (time,)}) for layer in LAYERS])
    ((code, _, detail),) = refused(made)
    assert code == "not_by_shape"
    assert "leave times out" in detail


def test_orders_that_wait_for_each_other() -> None:
    made = plan_on(microbatches=2)
    assert made.schedule is not None
    orders = (("0F0", "0B0", "0F1", "0B1"), ("1F0", "1F1", "1B0", "1B1"), made.schedule.orders[2])
    custom = made.schedule.model_copy(update={"name": "custom", "orders": orders})
    codes = {code for code, _, _ in refused(made.model_copy(update={"schedule": custom}))}
    assert codes == {"deadlock"}


def test_a_backward_before_its_own_forward() -> None:
    made = plan_on(microbatches=2)
    assert made.schedule is not None
    orders = (*made.schedule.orders[:2], ("2B0", "2F0", "2F1", "2B1"))
    custom = made.schedule.model_copy(update={"name": "custom", "orders": orders})
    assert {code for code, _, _ in refused(made.model_copy(update={"schedule": custom}))} == {"deadlock"}


def test_a_plan_that_is_infeasible() -> None:
    made = plan_on()
    nothing = made.model_copy(update={"status": "infeasible", "stages": (), "schedule": None, "prediction": None})
    assert [(code, pointer) for code, pointer, _ in refused(nothing)] == [("infeasible", "/status")]


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"slow_boards": [{"device": "d7", "speed": 0.5}]}, "/slow_boards/0/device"),
        ({"dead_boards": [{"device": "d7", "at_s": 0.5}]}, "/dead_boards/0/device"),
        ({"lossy_links": [{"devices": ["d0", "d7"], "loss": 0.1}]}, "/lossy_links/0/devices/1"),
    ],
)
def test_boards_that_the_cluster_does_not_have(options: dict[str, Any], pointer: str) -> None:
    ((code, place, detail),) = refused(plan_on(), EmulationOptions.model_validate(options))
    assert (code, place) == ("dangling_reference", pointer)
    assert "'d7'" in detail


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"lossy_links": [{"devices": ["d0", "d1"], "loss": 1.0}]}, "/lossy_links/0/loss"),
        ({"slow_boards": [{"device": "d0", "speed": 0.0}]}, "/slow_boards/0/speed"),
        ({"dead_boards": [{"device": "d0", "at_s": -1.0}]}, "/dead_boards/0/at_s"),
    ],
)
def test_faults_that_cannot_be(options: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(EmulationOptions, options)
    assert [fault.pointer for fault in caught.value.faults] == [pointer]


@pytest.mark.parametrize(
    ("options", "code", "pointer"),
    [
        ({"slow_boards": [{"device": "d0", "speed": 0.5}] * 2}, "duplicate_id", "/slow_boards/1/device"),
        ({"dead_boards": [{"device": "d0", "at_s": 0.5}] * 2}, "duplicate_id", "/dead_boards/1/device"),
        ({"lossy_links": [{"devices": ["d0", "d0"], "loss": 0.1}]}, "self_link", "/lossy_links/0/devices"),
        (
            {"lossy_links": [{"devices": ["d0", "d1"], "loss": 0.1}, {"devices": ["d1", "d0"], "loss": 0.2}]},
            "duplicate_link",
            "/lossy_links/1/devices",
        ),
    ],
)
def test_faults_that_say_two_things(options: dict[str, Any], code: str, pointer: str) -> None:
    faults = refused(plan_on(), EmulationOptions.model_validate(options))
    assert [(code, pointer) for code, pointer, _ in faults] == [(code, pointer)]


def test_every_fault_at_once() -> None:
    made = make_plan(even_request(2, 2), [["l0"], ["l1"]], "1f1b", 2)
    options = EmulationOptions.model_validate({"slow_boards": [{"device": "x", "speed": 2.0}]})
    assert [code for code, _, _ in refused(made, options)] == ["dangling_reference", "not_an_fpga"]
