"""What a formulation of the bottleneck is asked, and whom it tells what it finds."""

from __future__ import annotations

from typing import Protocol

from bapipe.formulations.problem import BottleneckProblem, Partition


class Listener(Protocol):
    """Whom a formulation tells what it finds while it works. Seconds are of the objective: largest load × M."""

    @property
    def best(self) -> Partition | None:
        """The best partition that is known, whoever found it."""

    @property
    def best_s(self) -> float:
        """What the best partition reaches; infinity where there is none."""

    @property
    def threshold_s(self) -> float:
        """What must be beaten: a formulation may end when it has proven that nothing is below."""

    def offer(self, partition: Partition, most_s: float, least_s: float = 0.0) -> bool:
        """Takes a partition that is claimed to need between `least_s` and `most_s`. False: it does not fit.

        Raises:
            SolverDisagreementError: timed again, it needs something else.
        """

    def bound(self, bound_s: float) -> None:
        """Takes a proven lower bound over all candidates."""

    @property
    def seconds_left(self) -> float:
        """Until the time is up."""

    def stop(self) -> bool:
        """Whether the time is up, or nobody waits any more."""


class Formulation(Protocol):
    """A way to find the candidate and the partition with the least largest stage load, and to prove it."""

    @property
    def name(self) -> str:
        """As `--solver` and the proof call it."""

    @property
    def tolerance(self) -> float:
        """Relative: its proofs hold to within."""

    @property
    def works_on_graph(self) -> bool:
        """Whether it looks at all cuts that the request allows, not only at those that are enumerated."""

    def solve(self, problem: BottleneckProblem, listener: Listener) -> bool:
        """Offers what it finds. True: nothing can be below the listener's threshold, or nothing fits; False: it ended
        without a proof.

        Raises:
            OutOfTimeError: `listener.stop()` turned true first.
        """
