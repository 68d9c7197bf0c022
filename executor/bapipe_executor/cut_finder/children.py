"""The children of a module as its layers, where they are called once each and nothing happens in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bapipe_executor.failures import reason_of
from bapipe_executor.layered_model import LayeredModel


def layered_children(model: nn.Module, inputs: Mapping[str, Tensor]) -> LayeredModel | str:
    """The layers, or why the children cannot be them. Runs the model once; what it changes is set back."""
    watched = _Watch(model, inputs)
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            output = watched.run()
        except _NotLayersError as error:
            return str(error)
        except Exception as error:
            return f"it fails on a batch: {reason_of(error)}"
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
    read = watched.read_of(output)
    if read is None or read in inputs:
        return f"{type(model).__name__} returns something else than what its last child made"
    layers = {name: model.get_submodule(name) for name in watched.reads}
    return LayeredModel(layers, watched.reads, inputs=tuple(inputs), output=read)


class _NotLayersError(Exception):
    pass


class _Between(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations outside of the children: what they change or decide would be lost with them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.depth:
            raise _NotLayersError(f"{func} happens between the children")
        return func(*args, **(kwargs or {}))


class _Watch:
    """Notes which child reads what another made, by the identity of the tensors."""

    def __init__(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> None:
        self._model = model
        self._inputs = inputs
        self._made: dict[int, str] = {id(tensor): name for name, tensor in inputs.items()}
        self._kept: list[Any] = []
        self._between = _Between()
        self.reads: dict[str, tuple[str, ...]] = {}

    def run(self) -> Any:
        hooks = []
        for name, child in self._model.named_children():
            hooks.append(child.register_forward_pre_hook(self._reader(name), with_kwargs=True))
            hooks.append(child.register_forward_hook(self._maker(name)))
        try:
            with self._between:
                return self._model(**self._inputs)
        finally:
            for hook in hooks:
                hook.remove()

    def read_of(self, value: Any) -> str | None:
        """The name of what made this very value."""
        return self._made.get(id(value))

    def _reader(self, name: str) -> Any:
        def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if name in self.reads:
                raise _NotLayersError(f"child {name} is called more than once")
            sources = [self.read_of(argument) for argument in args]
            if kwargs or any(source is None for source in sources):
                raise _NotLayersError(
                    f"child {name} reads something else than model inputs and what other children made"
                )
            self.reads[name] = tuple(source for source in sources if source is not None)
            self._between.depth += 1

        return hook

    def _maker(self, name: str) -> Any:
        def hook(_module: nn.Module, _args: tuple[Any, ...], made: Any) -> None:
            self._between.depth -= 1
            parts = list(made) if isinstance(made, tuple | list) else []
            if not all(isinstance(tensor, Tensor) for tensor in parts or [made]):
                raise _NotLayersError(f"child {name} makes something else than tensors")
            self._kept.append(made)
            self._made[id(made)] = name
            for number, tensor in enumerate(parts):
                self._made.setdefault(id(tensor), f"{name}:{number}")

        return hook
