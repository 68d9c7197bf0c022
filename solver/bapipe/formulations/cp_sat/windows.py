"""Bounds and plans for graphs with too many cuts to enumerate: the cheapest cut in every window of work.

Whatever the partition, its cut number s has some work in front of it; nothing with that much is crossed by less than
the cheapest cut of its window. So a load of T per stage carries the front at most this far, from any cut in window i to
one in window j, with P the work inside and c the seconds of what crosses:

    serial:  P_j <= P_i + T - c_i - c_j          overlap:  P_j <= P_i + T, where c_i + c_j <= T

The least T with which the front can pass over all the work in as many stages as there are is a lower bound. It is
raised by halving the windows that it passes through. The cheapest cuts are also good ones to plan with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bapipe.cost.transfer import transfer_s
from bapipe.cuts import Array, Indices, closed_set_pool
from bapipe.formulations.base import TOLERANCE
from bapipe.formulations.bottleneck import offer_best
from bapipe.formulations.choice import works_on_cuts
from bapipe.formulations.cp_sat.single_cut import CheapestCut, SingleCut
from bapipe.formulations.problem import BottleneckProblem
from bapipe.formulations.protocol import Listener

FIRST_WINDOWS = 64
NARROWEST = 2.0**-12
"""Of all work: windows are not halved beyond."""

PLAN_EVERY = 8
"""Rounds of halving after which the cuts found are planned with again."""

BISECTIONS = 48


@dataclass(frozen=True)
class _Window:
    low_s: float
    high_s: float
    cut: CheapestCut


class Windows:
    """The windows of a problem at one micro-batch size. Work is what each layer takes at least, on any device."""

    def __init__(self, problem: BottleneckProblem, size: int) -> None:
        self._problem, self._size = problem, size
        self._stages = max(candidate.num_devices for candidate in problem.by_size[size])
        self._work_s = problem.costs(size).work_s[: self._stages].min(axis=0)
        self._total_s = float(self._work_s.sum())
        self._finder = SingleCut(problem, self._work_s)
        self._links = [problem.link(s, s + 1) for s in range(self._stages - 1)]
        self._windows: list[_Window] = []
        self.cuts: set[int] = set()

    def open(self, listener: Listener, until_s: float) -> bool:
        """Divides all work into equal windows; False: there was no time for all of them."""
        edges = np.linspace(0.0, self._total_s, FIRST_WINDOWS + 1)
        for low_s, high_s in pairwise(edges):
            if listener.stop() or listener.seconds_left < until_s:
                return False
            self._windows += self._look(float(low_s), float(high_s))
        return True

    def halve(self, load_s: float) -> bool:
        """Halves the windows through which the front passes with that load; False: they are as narrow as can be."""
        passed = self._path(load_s)
        wide = [w for w in passed if self._windows[w].high_s - self._windows[w].low_s > NARROWEST * self._total_s]
        for number in sorted(set(wide), reverse=True):
            self._windows[number : number + 1] = list(self._halves(self._windows[number]))
        return bool(wide)

    def bound_s(self, low_s: float, high_s: float) -> float:
        """The largest load between two, the second of which is reached, that is proven to be too small."""
        if not self._passes(high_s):
            return high_s
        for _ in range(BISECTIONS):
            middle_s = (low_s + high_s) / 2
            if self._passes(middle_s):
                high_s = middle_s
            else:
                low_s = middle_s
        return low_s

    def _halves(self, window: _Window) -> Iterator[_Window]:
        """The half that has the cut keeps it; in the other a cheapest one is looked for."""
        middle_s = (window.low_s + window.high_s) / 2
        inside_s = None if window.cut.inside is None else float(self._work_s[window.cut.inside].sum())
        for low_s, high_s in ((window.low_s, middle_s), (middle_s, window.high_s)):
            if inside_s is not None and low_s <= inside_s <= high_s:
                yield _Window(low_s, high_s, window.cut)
            else:
                yield from self._look(low_s, high_s)

    def _look(self, low_s: float, high_s: float) -> Iterator[_Window]:
        cut = self._finder.find(low_s, high_s)
        if cut is not None:
            yield _Window(low_s, high_s, cut)
            if cut.inside is not None:
                self.cuts.add(sum(1 << int(layer) for layer in np.flatnonzero(cut.inside)))

    def _crossing_s(self, boundary: int) -> Array:
        """[windows] least seconds of what crosses, both ways, over the boundary behind a stage."""
        link, directions = self._links[boundary], self._problem.directions
        return np.array([directions * transfer_s(link, w.cut.bytes_per_sample * self._size) for w in self._windows])

    def _passes(self, load_s: float) -> bool:
        return any(self._passes_behind(fronts[-1], s, load_s) for s, fronts in self._advance(load_s))

    def _advance(self, load_s: float) -> Iterator[tuple[int, list[_Front]]]:
        """For every number of stages: how far they carry the front, window by window."""
        front = _Front(np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.intp))
        fronts = [front]
        for s in range(self._stages):
            yield s, fronts
            if s < self._stages - 1:
                fronts.append(self._next(fronts[-1], s, load_s))

    def _next(self, front: _Front, boundary: int, load_s: float) -> _Front:
        lows = np.array([window.low_s for window in self._windows])
        highs = np.array([window.high_s for window in self._windows])
        crossing_s = self._crossing_s(boundary)
        reached_s, come_from = self._carried(front, crossing_s, load_s)
        reached_s = np.minimum(highs, reached_s)
        reached_s[reached_s < lows - 1e-12 * self._total_s] = -np.inf
        return _Front(reached_s, crossing_s, come_from)

    def _carried(self, front: _Front, crossing_s: Array, load_s: float) -> tuple[Array, Indices]:
        """How far one more stage carries the front to cuts of such crossings, and from which window."""
        if self._problem.request.communication == "serial":
            best = int(np.argmax(front.reached_s - front.crossing_s))
            reached_s = front.reached_s[best] - front.crossing_s[best] + load_s - crossing_s
            return reached_s, np.full(len(crossing_s), best)
        order = np.argsort(front.crossing_s, kind="stable")
        farthest = np.maximum.accumulate(front.reached_s[order])
        latest = np.maximum.accumulate(np.where(front.reached_s[order] >= farthest, np.arange(len(order)), 0))
        usable = np.searchsorted(front.crossing_s[order], load_s - crossing_s, side="right") - 1
        reached_s = np.where(usable >= 0, farthest[usable] + load_s, -np.inf)
        return reached_s, order[latest[usable]]

    def _passes_behind(self, front: _Front, stage: int, load_s: float) -> bool:
        reached_s, _ = self._carried(front, np.zeros(1), load_s)
        return bool(reached_s[0] >= self._total_s * (1 - 1e-12))

    def _path(self, load_s: float) -> list[int]:
        """The windows through which the front passes."""
        for s, fronts in self._advance(load_s):
            if not self._passes_behind(fronts[-1], s, load_s):
                continue
            _, come_from = self._carried(fronts[-1], np.zeros(1), load_s)
            path = [int(come_from[0])]
            for front in reversed(fronts[2:]):
                path.append(int(front.come_from[path[-1]]))
            return path if s else []
        return []


@dataclass(frozen=True)
class _Front:
    """[windows] the most work inside a cut in each, minus infinity where none is reached; what crosses there; and the
    window that the stage before came from.
    """

    reached_s: Array
    crossing_s: Array
    come_from: Indices


def search_windows(problem: BottleneckProblem, listener: Listener, until_s: float) -> float:
    """A proven lower bound of the objective, with good partitions offered on the way; ends when `listener` has so many
    seconds left, or nothing more comes of it.

    Raises:
        OutOfTimeError: the time is up.
    """
    if problem.reach is None:
        return problem.least_s
    opened = {size: Windows(problem, size) for size in problem.by_size}
    if not all(windows.open(listener, until_s) for windows in opened.values()):
        return problem.least_s
    bounds = dict.fromkeys(opened, problem.least_s)
    rounds = 0
    while True:
        for size, windows in opened.items():
            count = problem.num_microbatches(size)
            known_s = min(listener.best_s, problem.most_s)
            bounds[size] = windows.bound_s(bounds[size] / count, known_s * (1 - TOLERANCE) / count) * count
        least = min(bounds, key=lambda size: bounds[size])
        listener.bound(bounds[least])
        if rounds % PLAN_EVERY == 0 and works_on_cuts(problem):
            cuts = set().union(*(windows.cuts for windows in opened.values()))
            offer_best(problem.along(closed_set_pool(problem.request.profile, problem.graph, cuts)), listener)
        rounds += 1
        done = bounds[least] >= listener.threshold_s or listener.seconds_left < until_s
        above_s = bounds[least] / problem.num_microbatches(least) * (1 + TOLERANCE)
        if done or listener.stop() or not opened[least].halve(above_s):
            return bounds[least]
