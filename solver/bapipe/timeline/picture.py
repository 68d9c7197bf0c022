"""What pictures of a step are drawn from: columns, whether a simulation has them here or a service sent them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Columns(Protocol):
    """Operations: entry k of each column is one of them."""

    @property
    def device(self) -> Sequence[int]: ...

    @property
    def stage(self) -> Sequence[int]: ...

    @property
    def kind(self) -> Sequence[str]: ...

    @property
    def microbatch(self) -> Sequence[int]: ...

    @property
    def start_s(self) -> Sequence[float]: ...

    @property
    def end_s(self) -> Sequence[float]: ...


class Interval(Protocol):
    """A reduction of a stage's gradients."""

    @property
    def stage(self) -> int: ...

    @property
    def start_s(self) -> float: ...

    @property
    def end_s(self) -> float: ...


class Picture(Protocol):
    """A step on devices, as `bapipe.simulator.Simulation` has it: seconds from its start."""

    @property
    def devices(self) -> Sequence[str]: ...

    @property
    def operations(self) -> Columns: ...

    @property
    def reductions(self) -> Sequence[Interval]: ...

    @property
    def optimizer_start_s(self) -> Sequence[float]: ...

    @property
    def optimizer_end_s(self) -> Sequence[float]: ...

    @property
    def engines(self) -> Sequence[int]: ...
