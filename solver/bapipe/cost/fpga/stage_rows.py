"""Every stage between two cuts as one group of layers more than another stage: what their knapsacks share.

A group is a layer with those behind it that work in stream; the first group of a stage also receives its input. None of
it depends on the device, on how it is shared or on how many micro-batches are in flight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bapipe.cost.fpga.demand import works_in_stream
from bapipe.cuts import CutSpace, Indices
from bapipe.problem import Layer

NOTHING_BEFORE = -1


@dataclass(frozen=True)
class Group:
    """Positions of layers in the topological order that run as one; `receives`: the cut over which the first of them
    receives the input of the stage.
    """

    positions: tuple[int, ...]
    receives: int | None


@dataclass(frozen=True)
class Batch:
    """Stages `start` to `end` - 1, which end with the same `group` behind stages that end at cut `behind`, at `places`
    among these (a slice where they are neighbours); None: behind nothing.
    """

    start: int
    end: int
    group: int
    behind: int | None
    places: Indices | slice


@dataclass(frozen=True)
class Ending:
    """All stages that end at cut `outer`. `done`: cuts whose stages nothing is put behind from here on."""

    outer: int
    batches: tuple[Batch, ...]
    done: tuple[int, ...]


@dataclass(frozen=True)
class StageRows:
    """[stages] cuts, last group, and the stage (or `NOTHING_BEFORE`) that the group is put behind; ending by ending."""

    groups: tuple[Group, ...]
    endings: tuple[Ending, ...]
    inner: Indices
    outer: Indices
    group: Indices
    before: Indices


def stage_rows(space: CutSpace, layers: Sequence[Layer]) -> StageRows:
    """The stages of a model, whose `layers` come in topological order."""
    maker = _Maker(space, [works_in_stream(layer) for layer in layers])
    for outer in range(1, space.size):
        maker.add(outer)
    return maker.rows()


@dataclass
class _Maker:
    space: CutSpace
    in_stream: Sequence[bool]
    groups: dict[Group, int] = field(default_factory=dict)
    batches: dict[int, list[Batch]] = field(default_factory=dict)
    inner: list[int] = field(default_factory=list)
    outer: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        every = np.arange(self.space.size)
        self._member = np.array([self.space.holds(position, every) for position in range(len(self.in_stream))])
        self._cut_of = {self._member[:, cut].tobytes(): cut for cut in range(self.space.size)}
        self._known: list[Group] = []
        self._row: dict[int, dict[int, int]] = {}
        self._first: dict[int, int] = {}

    def add(self, outer: int) -> None:
        """All stages that end at a cut; those of smaller cuts are there."""
        found: dict[tuple[int, int | None], list[tuple[int, int]]] = defaultdict(list)
        for last, parent, inners in self._parents(outer):
            for inner in inners:
                group, before = self._last_group(last, parent, inner)
                behind = None if before == NOTHING_BEFORE else self.outer[before]
                found[self._number(group), behind].append((inner, before))
        self._first[outer], self._row[outer], self.batches[outer] = len(self.inner), {}, []
        for (number, behind), stages in found.items():
            self._add_batch(outer, number, behind, stages)

    def rows(self) -> StageRows:
        """All of them."""
        last_use = {outer: outer for outer in self.batches}
        for outer, batches in self.batches.items():
            last_use |= {batch.behind: outer for batch in batches if batch.behind is not None}
        done: dict[int, list[int]] = defaultdict(list)
        for outer, last in last_use.items():
            done[last].append(outer)
        endings = [Ending(outer, tuple(batches), tuple(done[outer])) for outer, batches in self.batches.items()]
        columns = (np.array(each, dtype=np.intp) for each in (self.inner, self.outer, self.group, self.before))
        return StageRows(tuple(self.groups), tuple(endings), *columns)

    def _add_batch(self, outer: int, group: int, behind: int | None, stages: list[tuple[int, int]]) -> None:
        start = len(self.inner)
        for inner, before in stages:
            self._row[outer][inner] = len(self.inner)
            self.inner.append(inner)
            self.outer.append(outer)
            self.group.append(group)
            self.before.append(before)
        first = 0 if behind is None else self._first[behind]
        places = _places([before - first for _, before in stages])
        self.batches[outer].append(Batch(start, len(self.inner), group, behind, places))

    def _last_group(self, last: int, parent: int, inner: int) -> tuple[Group, int]:
        """The last group of the stage from `inner` over `parent` to its `last` layer, and the stage before it."""
        if inner == parent:
            return Group((last,), inner), NOTHING_BEFORE
        row = self._row[parent][inner]
        if not self.in_stream[last]:
            return Group((last,), None), row
        group = self._known[self.group[row]]
        return Group((*group.positions, last), group.receives), self.before[row]

    def _number(self, group: Group) -> int:
        if group not in self.groups:
            self.groups[group] = len(self.groups)
            self._known.append(group)
        return self.groups[group]

    def _parents(self, outer: int) -> list[tuple[int, int, list[int]]]:
        """(last layer, outer cut without it, inner cuts) of the stages that end at a cut."""
        member = self._member
        inside = ~(member & ~member[:, outer][:, None]).any(axis=0)
        inside[outer] = False
        inners = np.flatnonzero(inside)
        own = member[:, outer][:, None] & ~member[:, inners]
        lasts = len(own) - 1 - own[::-1].argmax(axis=0)
        found = []
        for last in np.unique(lasts):
            without = member[:, outer].copy()
            without[last] = False
            found.append((int(last), self._cut_of[without.tobytes()], inners[lasts == last].tolist()))
        return found


def _places(numbers: list[int]) -> Indices | slice:
    start, end = numbers[0], numbers[0] + len(numbers)
    return slice(start, end) if numbers == list(range(start, end)) else np.array(numbers, dtype=np.intp)
