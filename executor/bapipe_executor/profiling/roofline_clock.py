"""A clock for work that is only described: each operation takes its roofline time on a device kind.

Operations run on fake tensors, which have shapes and no data. Each moves the bytes that it reads and writes; products,
convolutions and attention also take their FLOPs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from bapipe.cost.roofline import Efficiency, roofline_s
from bapipe.errors import Fault, InvalidInputError
from bapipe.problem import DeviceKind, DType
from bapipe_executor.profiling.attention_flops import ATTENTION_FLOPS
from bapipe_executor.profiling.tensors import storages_in, tensor_bytes, tensors_in

aten = torch.ops.aten

DTYPES: dict[torch.dtype, DType] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
"""The arithmetic of a product of tensors of this type. 32-bit products are not rounded to TF32, torch's default."""

LOOKUPS = {aten.embedding, aten.index, aten.gather, aten.index_select, aten.take}
"""Operations that read as much of their first argument as they write."""

ALLOCATIONS = {aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided}
"""Operations that take memory and leave it as it was."""


class RooflineClock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the roofline times of all operations.

    Raises:
        InvalidInputError: the device kind lacks a figure that an operation needs.
    """

    repeats = 1
    warm_ups = 0
    exact = True

    def __init__(self, kind: DeviceKind, efficiency: Efficiency) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kind = kind
        self._efficiency = efficiency
        self._elapsed_s = 0.0

    def time(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds that the operations of `work` would take, one after the other, and what it returned."""
        before = self._elapsed_s
        with self:
            made = work()
        return self._elapsed_s - before, made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation and adds its time."""
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        packet = func._overloadpacket
        formula = ATTENTION_FLOPS.get(packet) or flop_registry.get(packet)
        flops = float(formula(*args, **kwargs, out_val=made)) if formula else 0.0
        traffic = 0.0 if packet in ALLOCATIONS else _traffic_bytes(func, packet, args, kwargs, made)
        if flops or traffic:
            self._elapsed_s += self._seconds(_dtype(args, made), flops, traffic)
        return made

    def _seconds(self, dtype: DType, flops: float, traffic: float) -> float:
        try:
            return roofline_s(self._kind, dtype, flops, traffic, self._efficiency)
        except ValueError as error:
            detail = f"{error}, which the model's operations need; choose another device kind, or another dtype"
            raise InvalidInputError([Fault("missing_figure", detail, "/device")]) from None


def _traffic_bytes(func: Any, packet: Any, args: Any, kwargs: Any, made: Any) -> float:
    """Bytes read and written. A view moves nothing; what changes in place is read and written."""
    read = storages_in((args, kwargs))
    written = [tensor for tensor in tensors_in(made) if id(tensor.untyped_storage()) not in read]
    if not written and not func._schema.is_mutable:
        return 0.0
    write_bytes = sum(map(tensor_bytes, written if written else tensors_in(made)))
    if packet in LOOKUPS:
        return 2.0 * write_bytes
    return float(write_bytes + sum(map(tensor_bytes, tensors_in((args, kwargs)))))


def _dtype(args: Any, made: Any) -> DType:
    kinds = (DTYPES.get(tensor.dtype) for tensor in tensors_in((args, made)))
    return next((kind for kind in kinds if kind), "fp32")
