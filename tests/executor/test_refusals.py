"""What cannot be run is refused with its reason, before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch
from torch import nn

from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.refusals import refuse
from bapipe_executor.trainer import PipelineTrainer
from harness.orders import one_stage_a_rank
from harness.plans import make_plan

RANKS = ((0,), (1,))
NAMES = ("a", "b", "c")


def chain(**layers: nn.Module) -> LayeredModel:
    made = {name: layers.get(name, nn.Linear(4, 4)) for name in NAMES}
    return LayeredModel(made, {"a": ["x"], "b": ["a"], "c": ["b"]}, ["x"], "c")


def plan(orders: Sequence[Sequence[str]] | None = None, **changes: Any) -> Plan:
    given: dict[str, Any] = {
        "model": chain(),
        "stages": [("a",), ("b", "c")],
        "ranks": RANKS,
        "orders": orders or one_stage_a_rank("1f1b", RANKS, 2),
        "num_microbatches": 2,
    }
    return make_plan(**(given | changes))


def refused(subject: Plan, model: LayeredModel | None = None) -> dict[str, str]:
    """The sentences of the faults, by code and pointer."""
    with pytest.raises(InvalidInputError) as caught:
        refuse(subject, model or chain())
    return {f"{fault.code} {fault.pointer}": fault.detail for fault in caught.value.faults}


def test_a_sound_plan_is_not_refused() -> None:
    refuse(plan(), chain())
    refuse(plan(recomputed={1: ["c"]}), chain(c=nn.Sequential(nn.Linear(4, 4), nn.Dropout())))


@pytest.mark.parametrize(
    ("orders", "fault"),
    [
        (
            [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F0", "1F1", "1B1"]],
            "duplicate_operation /schedule/orders/1/2",
        ),
        ([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1"]], "missing_operation /schedule/orders/1"),
        (
            [["0F0", "0B0", "1F1", "0F1", "0B1"], ["1F0", "1B0", "1F1", "1B1"]],
            "misplaced_operation /schedule/orders/0/2",
        ),
        ([["0F0", "0B1", "0F1", "0B0"], ["1F0", "1B0", "1F1", "1B1"]], "deadlock /schedule/orders"),
        ([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1I0", "1F1", "1B1"]], "mixed_backward /schedule/orders/1/3"),
        ([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1W0"]], "mixed_backward /schedule/orders/1/3"),
    ],
)
def test_orders_that_cannot_be_executed(orders: list[list[str]], fault: str) -> None:
    found = refused(plan(orders))
    assert any(key.startswith(fault) for key in found), found


def test_orders_that_wait_for_each_other_are_found_without_times() -> None:
    orders = [["0F0", "0I1", "0F1", "0W1", "0I0", "0W0"], ["1F0", "1I0", "1W0", "1F1", "1I1", "1W1"]]
    subject = plan(orders)
    layers = [layer.model_copy(update={"times": ()}) for layer in subject.request.profile.layers]
    profile = subject.request.profile.model_copy(update={"layers": tuple(layers)})
    request = subject.request.model_copy(update={"profile": profile})
    assert any(key.startswith("deadlock") for key in refused(subject.model_copy(update={"request": request})))


@pytest.mark.parametrize(
    ("change", "fault", "words"),
    [
        (lambda p: _request(p, task="inference"), "unsupported /request/task", "training"),
        (lambda p: _request(p, batch_size=5), "batch_mismatch /schedule/num_microbatches", "5"),
        (lambda p: _stage(p, forward_share=0.5), "unsupported /stages/0/forward_share", "FPGA emulator"),
        (lambda p: _schedule(p, name="gpipe"), "wrong_schedule /schedule/orders/1", "gpipe"),
        (lambda p: _schedule(p, name="pipedream"), "unsupported /schedule/name", "flush"),
    ],
)
def test_plans_of_another_kind(change: Callable[[Plan], Plan], fault: str, words: str) -> None:
    assert words in refused(change(plan()))[fault]


def test_a_plan_that_says_infeasible() -> None:
    subject = plan().model_copy(update={"status": "infeasible", "stages": (), "schedule": None, "prediction": None})
    assert "nothing_to_execute /stages" in refused(subject)


def test_a_model_that_the_profile_does_not_describe() -> None:
    model = LayeredModel({"a": nn.Linear(4, 4), "z": nn.Linear(4, 4)}, {"a": ["x"], "z": ["a"]}, ["x"], "z")
    found = refused(plan(), model)
    assert "dangling_reference /request/profile/layers/1/id" in found
    assert "z" in found["missing_layer /request/profile/layers"]


def test_a_layer_that_reads_a_later_stage() -> None:
    layers = {name: nn.Linear(4, 4) for name in ("b", "a", "c")}
    model = LayeredModel(layers, {"b": ["x"], "a": ["b"], "c": ["a"]}, ["x"], "c")
    assert "backward_edge /stages/0/layers/0" in refused(plan(), model)


@pytest.mark.parametrize("frozen", [False, True])
def test_recomputed_normalisation_unless_it_is_frozen(frozen: bool) -> None:
    norm = nn.BatchNorm1d(4)
    model = chain(c=nn.Sequential(nn.Linear(4, 4), norm))
    if frozen:
        norm.eval()
        refuse(plan(recomputed={1: ["c"]}), model)
    else:
        found = refused(plan(recomputed={1: ["b", "c"]}), model)
        assert list(found) == ["unsafe_recomputation /stages/1/recomputed_layers/1"]
        assert "twice" in found["unsafe_recomputation /stages/1/recomputed_layers/1"]


def test_synchronised_normalisation() -> None:
    assert "SyncBatchNorm" in refused(plan(), chain(b=nn.SyncBatchNorm(4)))["unsupported /stages"]


def test_a_model_wrapped_for_data_parallelism() -> None:
    wrapped = object.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(wrapped)
    assert "DDP" in refused(plan(), chain(b=wrapped))["unsupported /stages"]


def test_every_fault_is_said_at_once() -> None:
    found = refused(_request(plan(), batch_size=5), chain(b=nn.SyncBatchNorm(4)))
    assert len(found) == 2


def test_a_trainer_needs_a_process_group() -> None:
    with pytest.raises(InvalidInputError, match="no process group"):
        PipelineTrainer(plan(), chain(), nn.MSELoss(), lambda p: torch.optim.SGD(p, lr=0.1))


def _request(subject: Plan, **changes: Any) -> Plan:
    return subject.model_copy(update={"request": subject.request.model_copy(update=changes)})


def _stage(subject: Plan, **changes: Any) -> Plan:
    first, *others = subject.stages
    return subject.model_copy(update={"stages": (first.model_copy(update=changes), *others)})


def _schedule(subject: Plan, **changes: Any) -> Plan:
    assert subject.schedule is not None
    return subject.model_copy(update={"schedule": subject.schedule.model_copy(update=changes)})


def test_a_module_without_named_layers() -> None:
    with pytest.raises(InvalidInputError, match=r"Linear has no layers .* bapipe_executor\.layered\(model, inputs\)"):
        refuse(plan(), nn.Linear(4, 4))  # type: ignore[arg-type]
