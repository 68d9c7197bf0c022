"""Checkpoints: what they hold, which one is read, and what resuming makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from torch import Tensor

from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe_executor import launch
from bapipe_executor.checkpoint import complete_checkpoints
from bapipe_executor.checkpoint_lock import locked
from harness import orders
from harness.checkpoints import contents, noisy, run_rank, spec_of, unlike
from harness.plans import cut, make_plan
from harness.pool import Pool

pytestmark = pytest.mark.xdist_group("executor workers")

M = 8
LAYOUTS: dict[str, orders.Layout] = {
    "2": ((0,), (1,)),
    "3+1": ((0, 1, 2), (3,)),
    "4": ((0,), (1,), (2,), (3,)),
}
QUIET = {"model": "harness.checkpoints:quiet"}


def plan_on(layout: str, schedule: str = "1f1b") -> Plan:
    model, ranks = noisy(), LAYOUTS[layout]
    return make_plan(
        model, cut(model, (1, 2, 1, 1)[: len(ranks)]), ranks, orders.one_stage_a_rank(schedule, ranks, M), M
    )


def v_on_two() -> Plan:
    rows = orders.zb_v(2, M)
    layout, model = orders.layout_of(rows), noisy()
    return make_plan(model, cut(model, (1, 1, 1, 1)), layout, rows, M)


def test_resumed_it_goes_on_to_the_last_bit(pool: Pool, tmp_path: Path) -> None:
    """Dropout included: the state of the random numbers is that of the rank when it stopped."""
    plan = plan_on("2")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    pool.run(run_rank, 2, plan, spec_of(whole, 5))
    pool.run(run_rank, 2, plan, spec_of(parts, 2))
    pool.run(run_rank, 2, plan, spec_of(parts, 5, resume=True))
    assert [step for step, _ in complete_checkpoints(parts)] == [2, 5]
    assert unlike(contents(whole / "step-00000005"), contents(parts / "step-00000005")) == []
    assert unlike(contents(whole / "step-00000005"), contents(parts / "step-00000002"))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_another_plan_on_other_ranks_goes_on(pool: Pool, tmp_path: Path, optimizer: str) -> None:
    """Two ranks, replicas, four ranks with another schedule, and two stages a rank, one behind the other."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    pool.run(run_rank, 2, plan_on("2"), spec_of(whole, 8, optimizer=optimizer, **QUIET))
    plans = (plan_on("2"), plan_on("4", "gpipe"), v_on_two(), plan_on("4", "1f1b-so"))
    for number, plan in enumerate(plans, start=1):
        spec = spec_of(parts, 2 * number, optimizer=optimizer, resume=True, **QUIET)
        assert pool.run(run_rank, len(plan.schedule.orders if plan.schedule else ()), plan, spec)[0] == ""
    one, other = contents(whole / "step-00000008"), contents(parts / "step-00000008")
    assert {name for name in one if not name.startswith("rng")} == {n for n in other if not n.startswith("rng")}
    apart = {name: float((one[name] - other[name]).abs().max()) for name in one if isinstance(one[name], Tensor)}
    assert max(apart.values()) <= 1e-10, apart


def test_what_several_ranks_hold_is_there_once_under_its_first_name(pool: Pool, tmp_path: Path) -> None:
    pool.run(run_rank, 4, plan_on("3+1"), spec_of(tmp_path, 1))
    found = contents(tmp_path / "step-00000001")
    assert "model/layers.middle.weight" in found
    assert not [name for name in found if "again" in name]
    assert found["progress"] == {"steps": 1}
    assert {"rng/0", "rng/1", "rng/2", "rng/3", "lr_scheduler"} < found.keys()
    assert found["optimizer/layers.middle.weight"]["group"]["lr"] == pytest.approx(0.009)


def test_the_newest_complete_one_is_read_and_two_are_kept(pool: Pool, tmp_path: Path) -> None:
    plan = plan_on("2")
    pool.run(run_rank, 2, plan, spec_of(tmp_path, 5, checkpoint_every=1))
    assert [step for step, _ in complete_checkpoints(tmp_path)] == [4, 5]
    died = tmp_path / "step-00000009.partial"
    shutil.copytree(tmp_path / "step-00000005", died)
    (died / "__1_0.distcp").write_bytes(b"")
    assert pool.run(run_rank, 2, plan, spec_of(tmp_path, 6, resume=True)) == ["", ""]
    assert [step for step, _ in complete_checkpoints(tmp_path)] == [5, 6]
    assert not died.exists()


def test_a_full_disk_is_said_and_the_last_good_one_stays(pool: Pool, tmp_path: Path) -> None:
    plan = plan_on("2")
    pool.run(run_rank, 2, plan, spec_of(tmp_path, 1))
    before = contents(tmp_path / "step-00000001")
    answers = pool.run(run_rank, 2, plan, spec_of(tmp_path, 3, resume=True), 1000)
    for answer in answers:
        assert answer.startswith(f"CheckpointError: the checkpoint of step 3 cannot be written to {tmp_path}: ")
        assert "File too large (rank 1); that of step 1 is complete" in answer
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert unlike(before, contents(tmp_path / "step-00000001")) == []


def test_a_folder_that_cannot_be_made_is_said(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answers = pool.run(run_rank, 2, plan_on("2"), spec_of(tmp_path / "file" / "under", 1))
    assert all("Not a directory" in answer and "there is no earlier one" in answer for answer in answers)


def test_a_checkpoint_of_another_network_is_refused(pool: Pool, tmp_path: Path) -> None:
    pool.run(run_rank, 2, plan_on("2"), spec_of(tmp_path, 1, optimizer="sgd"))
    wider = spec_of(tmp_path, 2, resume=True, model="harness.checkpoints:wider")
    for answer in pool.run(run_rank, 2, plan_on("2"), wider):
        assert answer.startswith("InvalidInputError: ")
        assert "has the shape [3, 6] there, and [5, 6] in this network" in answer


def test_a_checkpoint_of_another_optimizer_is_refused(pool: Pool, tmp_path: Path) -> None:
    """Its values mean something else, and a learning rate would be taken over without a word."""
    pool.run(run_rank, 2, plan_on("2"), spec_of(tmp_path, 1, optimizer="sgd"))
    for answer in pool.run(run_rank, 2, plan_on("2"), spec_of(tmp_path, 2, resume=True)):
        assert "the optimizer of the checkpoint is torch.optim.sgd.SGD, and of this run torch.optim.adam.Adam" in answer


def test_nothing_is_written_again_when_all_steps_are_done(pool: Pool, tmp_path: Path) -> None:
    pool.run(run_rank, 2, plan_on("2"), spec_of(tmp_path, 2))
    before = (tmp_path / "step-00000002").stat().st_ino
    assert pool.run(run_rank, 2, plan_on("2"), spec_of(tmp_path, 2, resume=True)) == ["", ""]
    assert (tmp_path / "step-00000002").stat().st_ino == before


def test_a_damaged_checkpoint_is_said(pool: Pool, tmp_path: Path) -> None:
    pool.run(run_rank, 2, plan_on("2"), spec_of(tmp_path, 1))
    (tmp_path / "step-00000001" / ".metadata").write_bytes(b"\x80")
    for answer in pool.run(run_rank, 2, plan_on("2"), spec_of(tmp_path, 2, resume=True)):
        assert answer.startswith(f"CheckpointError: the checkpoint {tmp_path}/step-00000001 cannot be read: ")
        assert "if it is damaged, remove it" in answer


def test_one_run_at_a_time_saves_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    with locked(folder), pytest.raises(InvalidInputError, match="another run saves its checkpoints in"), locked(folder):
        pass
    with locked(folder):
        assert complete_checkpoints(folder) == []


def test_what_cannot_be_checkpointed_is_said_before_anything_starts(tmp_path: Path) -> None:
    def codes(**changes: object) -> list[str]:
        return [fault.code for fault in launch.checkpoint_faults(spec_of(tmp_path, 1, **changes))]

    assert codes(checkpoint=None, checkpoint_every=2, resume=True) == ["missing", "missing"]
    (tmp_path / "file").write_text("")
    assert codes(checkpoint=str(tmp_path / "file")) == ["wrong_type"]
    assert codes() == []
    (tmp_path / "step-00000003").mkdir()
    assert codes() == ["already_there"]
    assert codes(resume=True) == []
    with pytest.raises(InvalidInputError, match="add --resume"):
        launch.check_run(plan_on("2"), spec_of(tmp_path, 1))
