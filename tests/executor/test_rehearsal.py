"""Rehearsals: the stand-in, what is not rehearsed, and that nothing comes before its time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from bapipe.catalogue import ENTRIES, Setting
from bapipe.plan import Plan
from bapipe_executor import rehearsal
from harness.checkpoints import noisy
from harness.plans import cut, make_plan
from harness.pool import Pool
from harness.rehearsals import step_times

pytestmark = pytest.mark.xdist_group("executor workers")


def entry(name: str, **changes: float) -> Plan:
    values = {"forward_s": 0.01, "backward_s": 0.02, "transfer_s": 0.004} | changes
    return next(each for each in ENTRIES if each.name == name).make(Setting(2, 4, **values))


@pytest.mark.parametrize("name", ["gpipe", "1f1b-sno", "1f1b-so", "interleaved", "zb-v"])
def test_a_step_takes_no_less_than_is_planned(pool: Pool, tmp_path: Path, name: str) -> None:
    """How much longer it takes is up to the machine."""
    plan = entry(name)
    assert plan.prediction is not None
    for seconds in pool.run(step_times, 2, plan, 1, tmp_path / "board"):
        assert seconds[0] >= 0.99 * plan.prediction.step_time_s


def test_a_transfer_beside_compute_holds_up_only_its_reader(tmp_path: Path) -> None:
    sender, reader = (
        rehearsal.EmulatedCluster(entry("gpipe", transfer_s=0.05), rank, tmp_path / "b") for rank in (0, 1)
    )
    started_s = time.monotonic()
    with sender.around("0F0"):
        pass
    arrival_s = float(reader._board.arrival_s.max())
    assert started_s + 0.06 <= arrival_s
    with reader.around("1F0"):
        assert time.monotonic() >= arrival_s


def test_the_stand_in_reads_all_that_nobody_reads() -> None:
    model = noisy()
    plan = make_plan(model, cut(model, (1, 1)), ((0,), (1,)), (("0F0", "0B0"), ("1F0", "1B0")), 1)
    edges = tuple(edge for edge in plan.request.profile.edges or () if edge.target != "norm")
    profile = plan.request.profile.model_copy(update={"edges": edges})
    plan = plan.model_copy(update={"request": plan.request.model_copy(update={"profile": profile})})
    stand_in = rehearsal.network(plan)
    assert set(stand_in.names) == {layer.id for layer in profile.layers}
    assert "drop" in stand_in.reads[stand_in.names[-1]]
    assert stand_in.reads["norm"] == ("samples",)


def test_what_is_not_rehearsed_is_said() -> None:
    assert rehearsal.rehearsal_faults(entry("gpipe")) == []
    assert [fault.pointer for fault in rehearsal.rehearsal_faults(entry("1f1b-as"))] == ["/request/cluster/links"]
    assert [fault.pointer for fault in rehearsal.rehearsal_faults(entry("data-parallel"))] == ["/stages/0/devices"]
