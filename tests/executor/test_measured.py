"""What a run took beside its plan: bytes that are kept, the comparison, the trace, the calibrated profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch

from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe.simulator import simulate
from bapipe_executor.measured.comparison import predicted_saved_bytes
from bapipe_executor.measured.records import RankRecord, StepRecord, Timed, rank_file, read_ranks
from bapipe_executor.measured.report_files import calibrated_profile, write_report
from bapipe_executor.measured.saved_bytes import SavedBytes
from bapipe_executor.profiling.from_factories import Subject, measure
from harness import orders
from harness.measurements import measure as run_measured
from harness.plans import cut, make_plan
from harness.pool import Pool
from harness.training import Network

pytestmark = pytest.mark.xdist_group("executor workers")

M, SIZE = 6, 2


def planned(network: Network, schedule: str, ranks: int) -> Plan:
    """A plan over the profile that was measured of the network."""
    model = network.module.tiny(seed=1)
    profile = measure(
        Subject(f"bapipe_executor.models.{network.name}:tiny"),
        device="cpu",
        device_kind="reference",
        microbatch_sizes=(SIZE,),
        repeats=1,
        report=lambda done, total, layer: None,
    )
    layout = tuple((rank,) for rank in range(ranks))
    rows = orders.one_stage_a_rank(schedule, layout, M)
    plan = make_plan(model, cut(model, (1,) * ranks), layout, rows, M, microbatch_size=SIZE)
    return plan.model_copy(update={"request": plan.request.model_copy(update={"profile": profile})})


@pytest.mark.parametrize(
    ("name", "schedule", "ranks"),
    [("vgg16", "1f1b", 2), ("gpt2", "gpipe", 2), ("unet", "1f1b", 3), ("gnmt", "1f1b-so", 2)],
)
def test_kept_and_received_bytes_are_those_of_the_plan(
    pool: Pool, tmp_path: Path, name: str, schedule: str, ranks: int
) -> None:
    network = Network(name)
    plan = planned(network, schedule, ranks)
    pool.run(run_measured, ranks, network, plan, 1, tmp_path)
    predicted = predicted_saved_bytes(plan)
    found = {record.device: record.peak_saved_bytes for record in read_ranks(tmp_path, ranks)}
    assert found == {device: pytest.approx(size, rel=0.05) for device, size in predicted.items()}


def recorded(plan: Plan, factor: float) -> list[RankRecord]:
    """What would be measured if every operation took `factor` times its predicted time, forwards as predicted."""
    simulation = simulate(plan)
    rows = simulation.operations
    records = []
    for device, name in enumerate(simulation.devices):
        mine = [k for k, number in enumerate(rows.device) if number == device]
        operations = tuple(
            Timed(
                name=f"{rows.stage[k]}{rows.kind[k]}{rows.microbatch[k]}",
                start_s=rows.start_s[k],
                end_s=rows.start_s[k] + (rows.end_s[k] - rows.start_s[k]) * (1.0 if rows.kind[k] == "F" else factor),
            )
            for k in mine
        )
        whole = Timed(name="step", start_s=0.0, end_s=factor * simulation.step_time_s)
        steps = tuple(StepRecord(step=step, whole=whole, operations=operations) for step in (1, 2, 3))
        records.append(RankRecord(rank=device, device=name, steps=steps, peak_saved_bytes=10))
    return records


def given() -> Plan:
    model = Network("gpt2").model()
    layout = ((0,), (1,))
    return make_plan(model, cut(model, (1, 2)), layout, orders.one_stage_a_rank("1f1b", layout, M), M)


def test_a_report_sets_measured_beside_predicted_and_calibrates(tmp_path: Path) -> None:
    plan = given()
    for record in recorded(plan, 2.0):
        rank_file(tmp_path, record.rank).write_text(record.model_dump_json())
    report = write_report(plan, tmp_path)
    assert report.steps == 2
    assert report.measured_step_s == pytest.approx(2 * report.predicted_step_s)
    ratios = {(each.stage, each.kind): each.measured_s / each.predicted_s for each in report.operations}
    assert ratios == pytest.approx({(0, "F"): 1.0, (0, "B"): 2.0, (1, "F"): 1.0, (1, "B"): 2.0})
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" and event["name"][0] in "FB" for event in events) == 4 * M
    profile = calibrated_profile(tmp_path)
    before, after = plan.request.profile.layers[0].times[0], profile.layers[0].times[0]
    assert after.forward_s == pytest.approx(before.forward_s)
    assert after.backward_s == pytest.approx(2 * before.backward_s)
    again = plan.model_copy(update={"request": plan.request.model_copy(update={"profile": profile})})
    slower = {(each.stage, each.kind): each.predicted_s * ratios[each.stage, each.kind] for each in report.operations}
    operations = simulate(again).operations
    for stage, kind, start_s, end_s in zip(
        operations.stage, operations.kind, operations.start_s, operations.end_s, strict=True
    ):
        assert end_s - start_s == pytest.approx(slower[stage, kind])


def test_a_folder_without_a_report_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="has no record of rank 0; a run with --report leaves them there"):
        calibrated_profile(tmp_path)
    idle = RankRecord(rank=0, device="d0", steps=(), peak_saved_bytes=0)
    rank_file(tmp_path, 0).write_text(idle.model_dump_json())
    with pytest.raises(InvalidInputError, match="records without a step"):
        read_ranks(tmp_path, 1)


def test_saved_bytes_count_a_storage_once_and_as_long_as_it_is_kept() -> None:
    saved, weight = SavedBytes(), torch.ones(4, 4, requires_grad=True)
    given = torch.ones(8, 4)
    saved.leave_out([weight])
    saved.leave_out_for_now([given])
    with saved.recording():
        hidden = (given @ weight).exp()  # keeps its output
        total = (hidden * hidden[:2].sum()).sum()
    assert saved.peak == hidden.numel() * 4 + 4  # and the sum, a single number
    del hidden
    total.backward()
    del total
    buffer = torch.ones(100)
    saved.hold(buffer)
    assert saved.peak == 400
