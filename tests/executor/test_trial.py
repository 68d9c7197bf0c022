"""What factories make is tried on tensors without data before any process is started."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch

from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from bapipe_executor import launch, run_parts
from bapipe_executor.networks import default_data
from bapipe_executor.run_spec import RunSpec
from harness.orders import one_stage_a_rank
from harness.plans import make_plan

RANKS = ((0,), (1,))


def spec_of(**changes: Any) -> RunSpec:
    values = {"model": "harness.faulty:model", "data": "harness.faulty:data", "loss": "harness.faulty:loss", "steps": 3}
    named = {key: f"harness.faulty:{name}" if ":" not in name else name for key, name in changes.items()}
    return RunSpec(**(values | named))


@pytest.fixture(scope="module")
def plan() -> Plan:
    model = run_parts.make_model(spec_of())
    orders = one_stage_a_rank("1f1b", RANKS, 4)
    return make_plan(model, [model.names[:1], model.names[1:]], RANKS, orders, 4)


def faults_of(plan: Plan, **changes: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(InvalidInputError) as caught:
        launch.check_run(plan, spec_of(**changes))
    return [(fault.code, fault.pointer, fault.detail) for fault in caught.value.faults]


def test_what_is_sound_is_taken(plan: Plan) -> None:
    launch.check_run(plan, spec_of())
    launch.check_run(plan, spec_of(loss="loss_that_looks_at_its_data", lr_scheduler="plateau"))


@pytest.mark.parametrize(
    ("change", "code", "pointer", "words"),
    [
        ({"model": "fails"}, "factory_failed", "/model", "the weights are not there (faulty.py, line"),
        ({"model": "leaves"}, "factory_failed", "/model", "SystemExit: 3"),
        ({"model": "makes_nothing"}, "wrong_type", "/model", "NoneType"),
        ({"data": "makes_a_number"}, "wrong_type", "/data", "something that gives batches"),
        ({"data": "no_batch"}, "too_short", "/data", "3 are asked for"),
        ({"data": "fails_later"}, "factory_failed", "/data", "mini-batch 1 of harness.faulty:fails_later(8) failed"),
        ({"data": "pairs"}, "wrong_batch", "/data", "bapipe_executor.Batch"),
        ({"data": "unnamed"}, "wrong_batch", "/data/inputs", "the tensors by name"),
        ({"data": "without_target"}, "wrong_batch", "/data/target", "it is None"),
        ({"data": "scalar_target"}, "wrong_batch", "/data/target", "a number"),
        ({"data": "one_more"}, "batch_mismatch", "/data/inputs/input", "9 samples, where 8 are asked for"),
        ({"data": "too_wide"}, "cannot_cut", "/model", "fails on a batch"),
        ({"data": "float_targets"}, "loss_failed", "/loss", "Long"),
        ({"loss": "makes_nothing"}, "wrong_type", "/loss", "(output, target)"),
        ({"loss": "vector_loss"}, "wrong_loss", "/loss", "a tensor of shape [2]"),
        ({"loss": "detached_loss"}, "wrong_loss", "/loss", "no gradient"),
        ({"loss": "loss_that_fails"}, "loss_failed", "/loss", "no_such_method"),
        ({"optimizer": "makes_nothing"}, "wrong_type", "/optimizer", "Optimizer"),
        ({"optimizer": "fails"}, "factory_failed", "/optimizer", "ValueError"),
        ({"optimizer": "lbfgs"}, "unsupported", "/optimizer", "closure"),
        ({"lr_scheduler": "makes_nothing"}, "wrong_type", "/lr_scheduler", "learning-rate scheduler"),
        ({"lr_scheduler": "fails"}, "factory_failed", "/lr_scheduler", "ValueError"),
    ],
)
def test_what_is_wrong_is_said(plan: Plan, change: dict[str, str], code: str, pointer: str, words: str) -> None:
    (found,) = faults_of(plan, **change)
    assert found[:2] == (code, pointer)
    assert words in found[2]


def test_all_of_it_is_said_at_once(plan: Plan) -> None:
    found = faults_of(plan, model="fails", data="pairs", loss="makes_nothing")
    assert [pointer for _, pointer, _ in found] == ["/data", "/loss", "/model"]


def test_a_network_that_decides_by_its_data_is_not_taken_for_its_children(plan: Plan) -> None:
    """On this data it does nothing between its children; on other data it would."""
    (found,) = faults_of(plan, model="Decides")
    assert found[0] == "cannot_cut"
    assert "aten.sum.default happens between the children" in found[2]


def test_a_module_that_cannot_be_imported(plan: Plan, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("def model(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    (found,) = faults_of(plan, model="broken_module:model")
    assert found[:2] == ("module_failed", "/model")
    assert "SyntaxError" in found[2]


def test_a_model_that_is_no_reference_is_not_taken_for_missing_data() -> None:
    with pytest.raises(InvalidInputError, match=r"/model: 'harness\.faulty' names no factory"):
        default_data("harness.faulty")


def test_more_ranks_than_devices(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    for count, words in ((0, "no CUDA device"), (1, "2 ranks are to run on this host, and it has 1 CUDA devices")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        with pytest.raises(InvalidInputError, match=words):
            launch.check_run(plan, spec_of().model_copy(update={"device": "cuda"}))
