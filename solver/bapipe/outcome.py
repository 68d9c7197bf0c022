"""What a search has found, and where it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bapipe.assembly import Found
from bapipe.formulations.base import TOLERANCE
from bapipe.plan import Baseline


@dataclass(frozen=True)
class Outcome:
    """What a search has found so far, or in the end; small enough to be sent whenever it changes.

    `best` None: nothing yet; when `exhausted`, because nothing fits. `lower_bound_s` is of the objective over all
    candidates, None while none is proven; `complete`: over all the cuts that were asked for. `prover` names what proves
    it, to within `tolerance`.
    """

    best: Found | None
    lower_bound_s: float | None
    exhausted: bool
    complete: bool
    baselines: tuple[Baseline, ...]
    explanation: tuple[str, ...] = ()
    prover: str = ""
    tolerance: float = TOLERANCE


@dataclass(frozen=True)
class Progress:
    """Where a search stands: the phase, and what it has found so far."""

    phase: str
    outcome: Outcome

    @property
    def incumbent_s(self) -> float | None:
        """Seconds of the objective that the best plan so far reaches."""
        return None if self.outcome.best is None else self.outcome.best.objective_s

    @property
    def lower_bound_s(self) -> float | None:
        """Seconds of the objective that no candidate can beat."""
        return self.outcome.lower_bound_s

    @property
    def gap(self) -> float | None:
        """(incumbent - bound) / incumbent."""
        return relative_gap(self.incumbent_s, self.lower_bound_s)


OnProgress = Callable[[Progress], None]


def relative_gap(objective_s: float | None, bound_s: float | None) -> float | None:
    """(objective - bound) / objective, not below 0; None where either is unknown."""
    if objective_s is None or bound_s is None:
        return None
    return max(0.0, 1 - bound_s / objective_s) if objective_s else 0.0
