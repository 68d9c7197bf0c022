"""The one place that knows torch's private schedule runtime: plans run on it, action by action.

torch executes the actions of a rank in order, names each `PP:2F0` for its profiler, posts receives and awaits them at
the end of a step. What differs here:

- the peer of a transfer depends on the micro-batch, so that a stage may have replicas that take micro-batches in turn;
- metadata is static, so that no stage is run to find its shapes;
- a split backward is our own: torch's counts some gradients of parameters that are used twice, and loses others;
- kind R executes recomputed layers again, ahead of their backward;
- losses belong to their micro-batch, so that the last stage may take them in any order;
- receive buffers live from the receive to the end of the backward, and sent activations until their gradient arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    _Action,
    _batch_p2p,
    _ComputationType,
    _PipelineScheduleRuntime,
    _wait_batch_p2p,
)

from bapipe.orders import OPERATION
from bapipe_executor.observer import Observer
from bapipe_executor.placement import Placement
from bapipe_executor.recomputation import Context, Recomputation
from bapipe_executor.split_backward import Gradients, SplitBackward
from bapipe_executor.stage_module import StageModule
from bapipe_executor.value_specs import TensorSpec

MicrobatchLoss = Callable[[Any, int], Tensor]
"""(output, micro-batch) -> the share of that micro-batch in the loss of the mini-batch."""


@dataclass(frozen=True)
class Seat:
    """A stage on this rank, and the specs of what it receives and sends."""

    stage: int
    module: StageModule
    receives: tuple[TensorSpec, ...]
    sends: tuple[TensorSpec, ...]


class ReplicatedStage(PipelineStage):
    """A stage of which other ranks may have copies: micro-batch k is sent to, and received from, its replica there."""

    def __init__(self, seat: Seat, placement: Placement, device: torch.device, observer: Observer) -> None:
        num_stages, ranks = len(placement.stage_ranks), len(placement.devices)
        super().__init__(
            seat.module,
            seat.stage,
            max(num_stages, ranks),  # torch asks for as many stages as ranks, which replicas do not need
            device,
            input_args=tuple(spec.on_meta() for spec in seat.receives),
            output_args=tuple(spec.on_meta() for spec in seat.sends),
        )
        self.num_stages = num_stages
        self.module = seat.module
        self.placement = placement
        self.observer = observer
        self.microbatch = 0
        self.recomputations: dict[int, list[Recomputation]] = {}
        self.awaiting_gradient: dict[int, list[dist.Work]] = {}

    def peer_is_here(self, stage: int, microbatch: int) -> bool:
        """Whether this rank has that micro-batch of another stage, too."""
        return self.placement.rank_of(stage, microbatch) == self.group_rank

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        self.recomputations[fwd_chunk_id] = self.module.taken_recomputations()
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        self.microbatch = bwd_chunk_id
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        gradients = self.bwd_cache[bwd_chunk_id]
        self.bwd_cache[bwd_chunk_id] = tuple(None if g is None else g.contiguous() for g in gradients)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        self.microbatch = bwd_chunk_id
        super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> Any:
        recomputations = self.recomputations[self.microbatch]
        for recomputation in recomputations:
            recomputation.defer = backward_type == "input"
        if backward_type == "full":
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        if backward_type == "input":
            return self._input_gradients(bwd_kwargs, recomputations)
        bwd_kwargs["param_groups"].weight_gradients()
        for recomputation in recomputations:
            recomputation.weight_gradients()
        return (), None

    def _input_gradients(
        self, bwd_kwargs: dict[str, Any], recomputations: Sequence[Recomputation]
    ) -> tuple[Gradients, SplitBackward]:
        """The first half of a backward, and the second to come; torch keeps that, and nothing else any more."""
        backward = SplitBackward(
            bwd_kwargs["stage_output"],
            bwd_kwargs["output_grads"],
            bwd_kwargs["input_values"],
            self.submod.parameters(),
            [recomputation.anchor for recomputation in recomputations],
        )
        gradients = backward.input_gradients()
        bwd_kwargs.update(stage_output=None, output_grads=None, input_values=None)
        return gradients, backward

    def set_local_bwd_input(self, next_stage_bwd_outputs: tuple[Tensor | None, ...], mb_index: int) -> None:
        infos = self.grad_recv_info[mb_index]
        self._allocate(tuple(i for i, g in zip(infos, next_stage_bwd_outputs, strict=True) if g is None))
        super().set_local_bwd_input(next_stage_bwd_outputs, mb_index)

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        self._allocate(self.args_recv_info[fwd_chunk_id])
        return self._for(fwd_chunk_id, super().get_fwd_recv_ops)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        self._allocate(self.grad_recv_info[bwd_chunk_id])
        return self._for(bwd_chunk_id, super().get_bwd_recv_ops)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._for(fwd_chunk_id, super().get_fwd_send_ops)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._for(bwd_chunk_id, super().get_bwd_send_ops)

    def release(self, microbatch: int) -> None:
        """Frees what is left of a micro-batch whose backward has ended."""
        del self.recomputations[microbatch]
        for info in (*self.args_recv_info[microbatch], *self.grad_recv_info[microbatch]):
            info.buffer = None

    def _for(self, microbatch: int, operations: Callable[[int], list[dist.P2POp]]) -> list[dist.P2POp]:
        self.microbatch = microbatch
        return operations(microbatch)

    def _resolve_peer_global_rank(self, stage_idx: int) -> int:
        return self.placement.rank_of(stage_idx, self.microbatch)

    def _allocate(self, infos: Sequence[Any]) -> None:
        for info in infos:
            if info.buffer is None and info.tensor_meta is not None and not info.is_root_arg:
                meta = info.tensor_meta
                info.buffer = torch.empty(meta.shape, dtype=meta.dtype, device=self.device)
                self.observer.held(info.buffer)

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        self._without_buffers(
            lambda: super(ReplicatedStage, self)._setup_forward_recv_info(num_microbatches, has_backward)
        )
        for infos in self.args_recv_info.values():
            for info in infos:
                info.buffer = None

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        self._without_buffers(lambda: super(ReplicatedStage, self)._setup_backward_recv_info(num_microbatches))
        for infos in self.grad_recv_info.values():
            for info in infos:
                info.buffer = None

    def _without_buffers(self, setup: Callable[[], None]) -> None:
        """torch allocates a buffer for every micro-batch at once; those have no memory."""
        device, self.device = self.device, torch.device("meta")
        try:
            setup()
        finally:
            self.device = device

    def _warmup_forward_vote(self, has_backward: bool, received_acc: Tensor | None = None) -> Tensor:
        return torch.ones(1, dtype=torch.int32)

    def _warmup_backward_result(self, received_result: Tensor | None = None) -> Tensor:
        """Metadata is static on every rank; nobody needs to be asked."""
        return torch.ones(1, dtype=torch.int32)


class _Recompute(StrEnum):
    """The kind of operation that torch does not have."""

    RECOMPUTE = "R"


class ScheduleRuntime(_PipelineScheduleRuntime):
    """Executes the actions of this rank, step by step."""

    def __init__(
        self,
        seats: Sequence[Seat],
        placement: Placement,
        actions: Sequence[Sequence[str]],
        num_microbatches: int,
        device: torch.device,
        context: Context,
        observer: Observer | None = None,
    ) -> None:
        self.observer = observer or Observer()
        stages = {seat.stage: ReplicatedStage(seat, placement, device, self.observer) for seat in seats}
        super().__init__(  # type: ignore[no-untyped-call]
            list(stages.values()), num_microbatches, loss_fn=_never_called, scale_grads=False
        )
        self.stages = stages
        self.context = context
        self.pipeline_order_with_comms = {rank: list(map(_action, order)) for rank, order in enumerate(actions)}
        self._comp_type_to_function_map = {
            _ComputationType.FORWARD: self._forward,
            _ComputationType.FULL_BACKWARD: self._backward,
            _ComputationType.BACKWARD_INPUT: self._backward,
            _ComputationType.BACKWARD_WEIGHT: self._weight_gradient,
            _ComputationType.SEND_F: self._send_activation,
            _Recompute.RECOMPUTE: self._recompute,  # type: ignore[dict-item]
        }
        self._inputs: Sequence[Mapping[str, Tensor]] = ()
        self._loss: MicrobatchLoss | None = None
        self._losses: dict[int, Tensor] = {}

    def run(self, inputs: Sequence[Mapping[str, Tensor]], loss: MicrobatchLoss) -> dict[int, Tensor]:
        """One step: adds the gradients of this rank's stages to their parameters.

        `inputs` are the model's inputs of each micro-batch. Returns the losses of the micro-batches whose last stage
        this rank has; in a replica, of its own.
        """
        self._inputs, self._loss, self._losses = inputs, loss, {}
        self.step(return_outputs=False)
        self.observer.finished()
        return {k: value.detach() for k, value in self._losses.items()}

    def _forward(self, action: _Action, context: Any) -> None:
        stage, k = self._stage_and_microbatch(action)
        self.observer.before(str(action))
        self._await(self.fwd_recv_ops, stage, k)
        inputs = {name: self._inputs[k][name] for name in stage.module.interface.inputs}
        with self.observer.around(str(action)):
            output = stage.forward_one_chunk(k, (), inputs, save_forward_output=False)
            if stage.is_last:
                assert self._loss is not None
                with self.context():
                    self._losses[k] = self._loss(output, k)
        if stage.is_last:
            return
        for tensor in output:
            self.observer.held(tensor)
        if stage.peer_is_here(stage.stage_index + 1, k):
            self.stages[stage.stage_index + 1].set_local_fwd_input(output, k)

    def _backward(self, action: _Action, context: Any) -> None:
        stage, k = self._stage_and_microbatch(action)
        self.observer.before(str(action))
        self._await(self.bwd_recv_ops, stage, k)
        _wait_batch_p2p(stage.awaiting_gradient.pop(k, []))
        whole = action.computation_type == _ComputationType.FULL_BACKWARD
        with self.observer.around(str(action)):
            stage.backward_one_chunk(k, loss=self._losses.get(k) if stage.is_last else None, full_backward=whole)
        if stage.is_last:
            self._losses[k] = self._losses[k].detach()
        if not stage.is_first and stage.peer_is_here(stage.stage_index - 1, k):
            self.stages[stage.stage_index - 1].set_local_bwd_input(stage.get_local_bwd_output(k), k)  # type: ignore[no-untyped-call]
        if whole:
            stage.release(k)

    def _weight_gradient(self, action: _Action, context: Any) -> None:
        stage, k = self._stage_and_microbatch(action)
        self.observer.before(str(action))
        with self.observer.around(str(action)):
            stage.backward_weight_one_chunk(k)
        stage.release(k)

    def _recompute(self, action: _Action, context: Any) -> None:
        stage, k = self._stage_and_microbatch(action)
        self.observer.before(str(action))
        with self.observer.around(str(action)):
            for recomputation in stage.recomputations[k]:
                recomputation.again()

    def _send_activation(self, action: _Action, context: Any) -> None:
        stage, k = self._stage_and_microbatch(action)
        stage.awaiting_gradient[k] = _batch_p2p(stage.get_fwd_send_ops(k))

    def _stage_and_microbatch(self, action: _Action) -> tuple[ReplicatedStage, int]:
        assert action.microbatch_index is not None
        return self.stages[action.stage_index], action.microbatch_index

    @staticmethod
    def _await(posted: dict[tuple[int, int], list[dist.Work]], stage: ReplicatedStage, microbatch: int) -> None:
        _wait_batch_p2p(posted.pop((stage.stage_index, microbatch), []))


def _action(name: str) -> _Action:
    """`1R0`, which torch does not know, or anything else, which it does."""
    found = OPERATION.fullmatch(name)
    if found is None or found[2] != "R":
        return _Action.from_str(name)  # type: ignore[no-any-return]
    return _Action(int(found[1]), _Recompute.RECOMPUTE, int(found[3]))  # type: ignore[arg-type]


def _never_called(*_: Any) -> Tensor:
    """torch takes a schedule without a loss function for one without a backward."""
    raise NotImplementedError
