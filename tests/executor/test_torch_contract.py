"""What the executor takes for granted of torch's private schedule runtime; a new torch that changes it fails here."""

from __future__ import annotations

import inspect

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

import torch
from torch.distributed.pipelining import PipelineStage, schedules, stage


def test_the_version_is_the_one_that_was_studied() -> None:
    assert torch.__version__.startswith("2.13."), "study the schedule runtime of this torch before the pin is moved"


def test_actions_are_written_as_in_a_plan() -> None:
    for name in ("2F0", "1B3", "1I3", "0W12", "2SEND_F0", "1RECV_B7"):
        assert str(schedules._Action.from_str(name)) == name


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (PipelineStage, "forward_one_chunk", ["self", "fwd_chunk_id", "args", "kwargs", "save_forward_output"]),
        (PipelineStage, "backward_one_chunk", ["self", "bwd_chunk_id", "loss", "full_backward", "last_backward"]),
        (PipelineStage, "backward_weight_one_chunk", ["self", "bwd_chunk_id", "last_backward"]),
        (PipelineStage, "backward_maybe_with_nosync", ["self", "backward_type", "bwd_kwargs", "last_backward"]),
        (PipelineStage, "get_fwd_recv_ops", ["self", "fwd_chunk_id"]),
        (PipelineStage, "get_fwd_send_ops", ["self", "fwd_chunk_id"]),
        (PipelineStage, "get_bwd_recv_ops", ["self", "bwd_chunk_id"]),
        (PipelineStage, "get_bwd_send_ops", ["self", "bwd_chunk_id"]),
        (PipelineStage, "set_local_fwd_input", ["self", "prev_stage_outputs", "mb_index"]),
        (PipelineStage, "set_local_bwd_input", ["self", "next_stage_bwd_outputs", "mb_index"]),
        (PipelineStage, "get_local_bwd_output", ["self", "mb_index"]),
        (PipelineStage, "_resolve_peer_global_rank", ["self", "stage_idx"]),
        (PipelineStage, "_setup_forward_recv_info", ["self", "num_microbatches", "has_backward"]),
        (PipelineStage, "_setup_backward_recv_info", ["self", "num_microbatches"]),
        (PipelineStage, "_warmup_forward_vote", ["self", "has_backward", "received_acc"]),
        (PipelineStage, "_warmup_backward_result", ["self", "received_result"]),
        (schedules, "_batch_p2p", ["p2p_ops", "desc"]),
        (schedules, "_wait_batch_p2p", ["work"]),
    ],
)
def test_what_is_called_or_overridden_is_there(owner: object, name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_functions_of_our_own_come_before_those_of_the_runtime() -> None:
    source = inspect.getsource(schedules._PipelineScheduleRuntime._step_microbatches)
    assert "self.pipeline_order_with_comms[self.rank]" in source
    assert "if action.computation_type in self._comp_type_to_function_map:" in source
    assert {"fwd_recv_ops", "bwd_recv_ops", "_comp_type_to_function_map"} <= set(
        schedules._PipelineScheduleRuntime.__init__.__code__.co_names
    )


def test_a_receive_is_described_by_what_is_read_here() -> None:
    assert {"source", "buffer", "tensor_meta", "is_root_arg"} <= set(stage._RecvInfo.__init__.__code__.co_names)
