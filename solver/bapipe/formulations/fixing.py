"""What a limit on the largest load says of single layers before anything is searched."""

from __future__ import annotations

import numpy as np

from bapipe.cuts import Array
from bapipe.formulations.problem import BottleneckProblem


class Reachable:
    """In which stages a layer can be when no load × M exceeds `most_s` seconds.

    The layers up to stage s, itself and all that come before it among them, are worked on by s + 1 devices; those from
    stage s on by the devices behind. Each layer counts with what it takes at least, over devices and sizes.
    """

    def __init__(self, problem: BottleneckProblem, most_s: float) -> None:
        self._stages, self._most_s = problem.most_stages, most_s * (1 + 1e-9)
        least = [
            problem.costs(size).work_s[: self._stages].min(axis=0) * problem.num_microbatches(size)
            for size in problem.by_size
        ]
        work: Array = np.min(least, axis=0)
        reach = problem.reach
        self._before_s = work if reach is None else work + work @ reach
        self._behind_s = work if reach is None else work + reach @ work

    def too_early(self, layer: int) -> range:
        """The first stages, which cannot hold the layer."""
        for s in range(self._stages - 1):
            if self._before_s[layer] <= (s + 1) * self._most_s:
                return range(s)
        return range(self._stages - 1)

    def too_late(self, layer: int) -> range:
        """The stages behind which it cannot be: it is within them."""
        for s in range(self._stages - 1):
            if self._behind_s[layer] > (self._stages - 1 - s) * self._most_s:
                return range(s, self._stages - 1)
        return range(self._stages - 1, self._stages - 1)
