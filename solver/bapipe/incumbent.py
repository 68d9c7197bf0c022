"""The best plan that a search has found, and what nothing left can beat."""

from __future__ import annotations

from collections.abc import Callable

from bapipe.assembly import Draft, Found
from bapipe.explain import explain
from bapipe.formulations.base import TOLERANCE
from bapipe.problem import PlanRequest


class Incumbent:
    """What a search keeps. `improved` is called for each better plan, `raised` for each bound.

    `best_s` is the objective of the best plan, infinity where there is none. `bound_s`, a lower bound over all
    candidates, is None until there is one.
    """

    def __init__(self, request: PlanRequest, improved: Callable[[], None], raised: Callable[[], None]) -> None:
        self.best: Draft | None = None
        self.best_s = float("inf")
        self.found: Found | None = None
        self.bound_s: float | None = None
        self._request, self._improved, self._raised = request, improved, raised

    @property
    def threshold_s(self) -> float:
        """What a better plan must be below: better by more than the gap that was asked for."""
        return self.best_s * (1 - max(self._request.gap, TOLERANCE))

    def take(self, draft: Draft | None) -> None:
        """Keeps the better draft that is allowed and fits; of two as good, the preferred one."""
        if draft is None or not draft.fits or not draft.obeys_pins(self._request):
            return
        value_s, best = draft.objective_s(self._request), self.best
        tied = abs(value_s - self.best_s) <= TOLERANCE * value_s
        if (tied and best is not None and draft.preference < best.preference) or (not tied and value_s < self.best_s):
            self.best, self.best_s = draft, min(value_s, self.best_s)
            self.found = draft.found(self._request, explain(self._request, draft))
            self._improved()

    def note_bound(self, bound_s: float) -> None:
        """Takes a bound over all candidates; one below that of before says nothing new."""
        self.bound_s = max(bound_s, self.bound_s or 0.0)
        self._raised()

    def close(self) -> None:
        """No candidate is left that could beat the best plan by more than the gap: that is a bound."""
        if self.best is not None:
            least_s = max(self.threshold_s, self.bound_s or 0.0) if self._request.gap else self.best_s
            self.bound_s = min(least_s, self.best_s)
