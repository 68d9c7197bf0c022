"""Training on virtual boards is training: losses and parameters are those of one process, whatever the schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from bapipe.emulation import DeadBoard, EmulationOptions, LossyLink, SlowBoard
from bapipe.emulation.emulate import emulate
from bapipe.errors import InvalidInputError
from bapipe.faults import parse
from bapipe.lowering import Operation
from bapipe.plan import Plan
from bapipe.problem import Fpga
from bapipe.simulator import Simulation
from bapipe_executor.fpga import parse_format, train_on_boards, with_operators
from bapipe_executor.fpga.board import MissingDependencyError
from bapipe_executor.fpga.training import VirtualRun, execution_order
from harness.plans import cut, make_plan
from harness.training import Network, Training, train_in_one_process

MICROBATCHES, SIZE, STEPS = 4, 2, 3
BOARD = Fpga(
    dsp_slices=256,
    clock_hz=1e6,
    on_chip_bytes=2**16,
    off_chip_bytes=2**30,
    off_chip_bandwidth_bytes_per_s=1e7,
    macs_per_dsp={"fp32": 1.0},
    memory_block_bytes=256,
    fifo_bytes=2**14,
)
BOARDS = 3
NETWORKS = ("vgg16", "resnet50", "gnmt", "gpt2")


def order(schedule: str, stage: int) -> list[str]:
    forwards, backwards = ([f"{stage}{kind}{k}" for k in range(MICROBATCHES)] for kind in "FB")
    ahead = {"gpipe": MICROBATCHES, "1f1b": BOARDS - stage, "1f1b-so": 2 * (BOARDS - 1 - stage) + 1}.get(schedule)
    ahead = min(MICROBATCHES, 2 * (BOARDS - stage) if ahead is None else ahead)
    rest = forwards[ahead:]
    row = forwards[:ahead]
    for k, backward in enumerate(backwards):
        row += [backward, *rest[k : k + 1]]
    return row


LINKS = {
    "1F1B-AS": ("1f1b", {"mode": "streaming", "chunks": 4}, "async"),
    "FBP-AS": ("fbp-as", {"mode": "streaming", "chunks": 4}, "async"),
    "1F1B-SNO": ("1f1b", {"mode": "blocking"}, "sync"),
    "1F1B-SO": ("1f1b-so", {"mode": "overlapped"}, "sync"),
    "GPipe": ("gpipe", {"mode": "overlapped"}, "sync"),
    "data parallel": ("data-parallel", {"mode": "overlapped"}, "sync"),
}


def plan_on_boards(network: Network, schedule: str, stages: list[tuple[str, ...]] | None = None) -> Plan:
    name, link, execution = LINKS[schedule]
    model = network.model()
    if name == "data-parallel":
        groups, ranks = [model.names], [list(range(BOARDS))]
        rows = [[f"0{kind}{k}" for k in range(r, MICROBATCHES, BOARDS) for kind in "FB"] for r in range(BOARDS)]
    else:
        groups, ranks = stages or cut(model, (3, 2, 4)), [[rank] for rank in range(BOARDS)]
        rows = [order(name, stage) for stage in range(BOARDS)]
    plan = make_plan(model, groups, ranks, rows, MICROBATCHES, microbatch_size=SIZE)
    batch = next(network.batches(SIZE))
    profile = with_operators(plan.request.profile, model, batch.inputs)
    untimed = tuple(layer.model_copy(update={"times": (), "parameter_bytes": 64}) for layer in profile.layers)
    cluster: dict[str, Any] = {
        "kinds": [{"name": "board", "memory_bytes": 2**30, "fpga": BOARD, "execution": execution}],
        "devices": [{"id": f"d{rank}", "kind": "board"} for rank in range(BOARDS)],
        "links": {"within_host": {"bandwidth_bytes_per_s": 1e6, **link}},
    }
    share = 0.4 if name == "fbp-as" else None
    return parse(
        Plan,
        plan.model_dump()
        | {
            "request": plan.request.model_dump()
            | {"cluster": cluster, "profile": profile.model_copy(update={"layers": untimed}).model_dump()},
            "stages": [stage.model_dump() | {"forward_share": share} for stage in plan.stages],
        },
    )


def trained(network: Network, plan: Plan, training: Training, **options: Any) -> VirtualRun:
    batches = network.batches(MICROBATCHES * SIZE)
    return train_on_boards(
        plan,
        network.model(),
        network.loss(),
        batches,
        training.steps,
        lambda named: training.make_optimizer([parameter for _, parameter in named]),
        **options,
    )


@pytest.mark.parametrize("schedule", LINKS)
@pytest.mark.parametrize("name", NETWORKS)
def test_losses_and_parameters_are_those_of_one_process(name: str, schedule: str) -> None:
    network, training = Network(name), Training("sgd", steps=STEPS)
    expected = train_in_one_process(network, MICROBATCHES, SIZE, training)
    found = trained(network, plan_on_boards(network, schedule), training)
    assert found.losses == pytest.approx(expected.losses, abs=1e-10, rel=0)
    held = {key: value for key, value in expected.states[0].items() if not key.endswith(("_mean", "_var", "_tracked"))}
    assert held.keys() <= found.state.keys()
    for key, tensor in held.items():
        assert tensor.dtype == torch.float64
        assert float((found.state[key] - tensor).abs().max()) <= 1e-10, key
    report = found.report
    assert report.step_time_s is not None
    assert report.step_time_s > 0
    assert all(link.sent_bytes == link.received_bytes for link in report.links)


@pytest.mark.parametrize("schedule", ["1F1B-AS", "FBP-AS"])
def test_a_linear_layer_split_over_boards_trains_as_the_whole_one(schedule: str) -> None:
    whole, split, training = Network("vgg16"), Network("vgg16", factory="tiny_split"), Training("sgd", steps=STEPS)
    names = split.model().names
    ends = [names.index("linear0.part1"), names.index("linear0.part6")]
    stages = [names[: ends[0]], names[ends[0] : ends[1]], names[ends[1] :]]
    expected = train_in_one_process(whole, MICROBATCHES, SIZE, training)
    found = trained(split, plan_on_boards(split, schedule, stages), training)
    assert found.losses == pytest.approx(expected.losses, abs=1e-10, rel=0)
    weights = [found.state[f"layers.linear0:part{number}.weight"] for number in range(8)]
    assert float((torch.cat(weights) - expected.states[0]["layers.linear0.weight"]).abs().max()) <= 1e-10


def test_tied_parameters_on_two_boards_stay_one() -> None:
    network, training = Network("gpt2", tie=("embedding/tokens.weight", "head/weight")), Training("adam", steps=2)
    plan = plan_on_boards(Network("gpt2"), "1F1B-AS")
    expected = train_in_one_process(network, MICROBATCHES, SIZE, training)
    found = trained(network, plan, training)
    for key in ("layers.embedding.tokens.weight", "layers.head.weight"):
        assert float((found.state[key] - expected.states[0][key]).abs().max()) <= 1e-9


def test_slow_boards_and_lossy_links_change_no_number() -> None:
    network, training = Network("vgg16"), Training(steps=2)
    plan = plan_on_boards(network, "FBP-AS")
    options = EmulationOptions(
        slow_boards=(SlowBoard(device="d1", speed=0.3),), lossy_links=(LossyLink(devices=("d0", "d1"), loss=0.5),)
    )
    plain, faulty = trained(network, plan, training), trained(network, plan, training, options=options)
    assert plain.losses == pytest.approx(faulty.losses, rel=1e-12)
    assert faulty.report.step_time_s > plain.report.step_time_s
    for key, tensor in plain.state.items():
        torch.testing.assert_close(faulty.state[key], tensor, rtol=1e-12, atol=1e-12)


def test_a_board_that_dies_trains_nothing() -> None:
    network = Network("vgg16")
    options = EmulationOptions(dead_boards=(DeadBoard(device="d1", at_s=1e-4),))
    found = trained(network, plan_on_boards(network, "1F1B-AS"), Training(), options=options)
    assert found.losses == ()
    assert found.report.loss is not None
    for key, tensor in network.model().state_dict().items():
        assert torch.equal(found.state[key], tensor)


@pytest.mark.parametrize("text", ["bf16", "fp16", "Q3.12", "Q7.8"])
def test_other_numbers_train_to_other_losses_near_by(text: str) -> None:
    network, training = Network("vgg16"), Training(steps=2)
    plan = plan_on_boards(network, "1F1B-AS")
    exact, rounded = trained(network, plan, training), trained(network, plan, training, rounding=parse_format(text))
    assert rounded.losses != exact.losses
    assert rounded.losses == pytest.approx(exact.losses, rel=0.02)


def test_orders_split_into_input_and_weight_gradients() -> None:
    network, training = Network("gpt2"), Training(steps=2)
    plan = plan_on_boards(network, "1F1B-AS")
    assert plan.schedule is not None
    rows = []
    for row in plan.schedule.orders:
        split = [op.replace("B", "I") for op in row]
        rows.append((*split, *(op.replace("B", "W") for op in row if "B" in op)))
    schedule = plan.schedule.model_copy(update={"orders": tuple(rows)})
    expected = train_in_one_process(network, MICROBATCHES, SIZE, training)
    found = trained(network, plan.model_copy(update={"schedule": schedule}), training)
    assert found.losses == pytest.approx(expected.losses, abs=1e-10, rel=0)


@pytest.mark.parametrize(
    ("swapped", "named"),
    [
        (("0F0", "1F0"), "1F0 is executed before"),
        (("1B0", "2B0"), "1B0 is executed before the gradient of"),
        (("2F0", "2B0"), "2B0 is executed before what comes before it"),
    ],
)
def test_a_wrong_order_shows(monkeypatch: pytest.MonkeyPatch, swapped: tuple[str, str], named: str) -> None:
    def swap(simulation: Simulation) -> list[tuple[str, Operation]]:
        rows = execution_order(simulation)
        places = [next(k for k, (_, operation) in enumerate(rows) if str(operation) == text) for text in swapped]
        rows[places[0]], rows[places[1]] = rows[places[1]], rows[places[0]]
        return rows

    monkeypatch.setattr("bapipe_executor.fpga.training.execution_order", swap)
    network = Network("vgg16")
    with pytest.raises(MissingDependencyError, match=named):
        trained(network, plan_on_boards(network, "1F1B-AS"), Training(steps=1))


def test_operations_are_executed_as_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that starts after its writer, and ends before it, reads what is not there."""
    plan = plan_on_boards(Network("vgg16"), "1F1B-AS")
    simulation = emulate(plan).simulation
    operations = simulation.operations
    ends = {(o.stage, o.kind, o.microbatch): k for k, (_, o) in enumerate(execution_order(simulation))}
    by_end = sorted(zip(operations.end_s, operations.stage, operations.kind, operations.microbatch, strict=True))
    assert [end_s for end_s, *_ in by_end] == [
        end_s for _, end_s in sorted((ends[tuple(row)], end_s) for end_s, *row in by_end)
    ]
    early = tuple(
        start_s if (stage, kind) == (1, "F") else end_s
        for stage, kind, start_s, end_s in zip(
            operations.stage, operations.kind, operations.start_s, operations.end_s, strict=True
        )
    )
    hasty = replace(simulation, operations=replace(operations, end_s=early))
    monkeypatch.setattr("bapipe_executor.fpga.training.execution_order", lambda _: execution_order(hasty))
    with pytest.raises(MissingDependencyError, match="1F0 is executed before"):
        trained(Network("vgg16"), plan, Training(steps=1))


def test_a_plan_of_another_network_is_refused() -> None:
    plan = plan_on_boards(Network("gpt2"), "1F1B-AS")
    with pytest.raises(InvalidInputError, match="not of this network"):
        trained(Network("vgg16"), plan, Training())
