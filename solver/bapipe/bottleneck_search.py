"""The search for the least bottleneck: a warm start, the formulation that is asked for, and a second opinion.

No solver's word is taken. Every partition is timed again by the cost of the plan that it makes; a bound above what a
plan reaches, and two methods that find different optima, are errors that name both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

from bapipe.assembly import Assembler, Draft
from bapipe.cuts import cut_space
from bapipe.errors import SolverDisagreementError
from bapipe.formulations.base import TOLERANCE, OutOfTimeError, Stop
from bapipe.formulations.bottleneck import DynamicProgram, best_partition, offer_best, partition_problem
from bapipe.formulations.choice import employ_idle_devices, second_opinion, works_on_cuts
from bapipe.formulations.problem import BottleneckProblem, Partition
from bapipe.formulations.protocol import Formulation
from bapipe.problem import PlanRequest

TIE_CUTS = 3_000
"""The most cuts among which the preferred one of several best plans is looked for."""


class Keeper(Protocol):
    """Who keeps the best plan of a search, and its bound."""

    @property
    def best(self) -> Draft | None:
        """The best plan so far."""

    @property
    def best_s(self) -> float:
        """Its objective; infinity where there is none."""

    @property
    def threshold_s(self) -> float:
        """What a better plan must be below."""

    def take(self, found: Draft) -> None:
        """Keeps the better of two plans that fit."""

    def note_bound(self, bound_s: float) -> None:
        """Takes a bound over all candidates."""


@dataclass
class Witness:
    """Keeps the best of what one formulation says, with nothing known before."""

    request: PlanRequest
    best: Draft | None = None
    best_s: float = float("inf")

    @property
    def threshold_s(self) -> float:
        """What a better plan must be below."""
        return self.best_s * (1 - TOLERANCE)

    def take(self, found: Draft) -> None:
        """Keeps the better plan; that it fits is known."""
        value_s = found.objective_s(self.request)
        if value_s < self.best_s:
            self.best, self.best_s = found, value_s

    def note_bound(self, bound_s: float) -> None:
        """Nobody waits for it."""


@dataclass
class Hearing:
    """What a formulation is told, and what becomes of what it says.

    `found_by`: whose the best plan is; `bound_by`: whose the highest bound.
    """

    problem: BottleneckProblem
    assembler: Assembler
    keeper: Keeper
    stop: Stop
    deadline_s: float
    heard: Formulation
    found_by: str = "the search before it"
    bound_s: float = 0.0
    bound_by: str = ""
    bound_tolerance: float = 0.0

    def hear(self, formulation: Formulation, problem: BottleneckProblem) -> bool:
        """Has a formulation solve a problem. True: it has proven that nothing is better, or that nothing fits.

        Raises:
            OutOfTimeError: the time is up.
            SolverDisagreementError: what it says does not hold.
        """
        self.heard = formulation
        return formulation.solve(problem, self)

    @property
    def best(self) -> Partition | None:
        """The best partition that is known."""
        draft, position = self.keeper.best, self.problem.position
        if draft is None:
            return None
        stages = tuple(tuple(sorted(position[name] for name in layers)) for layers in draft.layers)
        return Partition(draft.candidate, stages)

    @property
    def best_s(self) -> float:
        """What it reaches."""
        return self.keeper.best_s

    @property
    def threshold_s(self) -> float:
        """What must be beaten."""
        return self.keeper.threshold_s

    @property
    def seconds_left(self) -> float:
        """Until the deadline; never nothing, which to a solver may mean without limit."""
        return max(0.01, self.deadline_s - time.monotonic())

    def offer(self, partition: Partition, most_s: float, least_s: float = 0.0) -> bool:
        """Times a partition again, and keeps it under the first schedule in which it fits.

        Raises:
            SolverDisagreementError: it needs something else than was claimed.
        """
        for candidate in self.problem.schedules_for(partition.candidate):
            draft = self.assembler.partition(candidate, partition.stages)
            actual_s = draft.objective_s(self.problem.request)
            if not least_s * (1 - TOLERANCE) <= actual_s <= most_s * (1 + TOLERANCE):
                claim = f"{self.heard.name} says that {candidate} needs between {least_s!r} and {most_s!r} s"
                raise SolverDisagreementError(f"{claim}; timed again, it needs {actual_s!r} s")
            if draft.fits:
                self.found_by = self.heard.name if actual_s < self.best_s else self.found_by
                self.keeper.take(draft)
                self._agree()
                return True
        return False

    def bound(self, bound_s: float) -> None:
        """Takes a bound that a formulation has proven.

        Raises:
            SolverDisagreementError: a plan that is known is below it.
        """
        if bound_s > self.bound_s:
            self.bound_s, self.bound_by, self.bound_tolerance = bound_s, self.heard.name, self.heard.tolerance
            self._agree()
        self.keeper.note_bound(min(bound_s, self.best_s))

    def _agree(self) -> None:
        if self.bound_s > self.best_s * (1 + max(TOLERANCE, self.bound_tolerance)):
            claim = f"{self.bound_by} says that nothing is below {self.bound_s!r} s"
            raise SolverDisagreementError(f"{claim}; {self.found_by} has a plan of {self.best_s!r} s")


def search_bottleneck(
    problem: BottleneckProblem,
    formulation: Formulation,
    assembler: Assembler,
    keeper: Keeper,
    stop: Stop,
    deadline_s: float,
) -> bool:
    """Whether it is proven that no plan is better than the one that `keeper` has in the end, or that none fits.

    Raises:
        OutOfTimeError: the time is up.
        SolverDisagreementError: two methods that must agree do not.
    """
    hearing = Hearing(problem, assembler, keeper, stop, deadline_s, formulation)
    hearing.bound(problem.least_s)
    if not isinstance(formulation, DynamicProgram) and works_on_cuts(problem):
        hearing.heard = DynamicProgram()
        offer_best(problem.along(cut_space(problem.request.profile, "topological-order")), hearing)
    proven = hearing.hear(formulation, problem)
    other = second_opinion(problem, formulation)
    if proven and other is not None:
        _compare(hearing, formulation, other)
    return proven


def settle_ties(
    problem: BottleneckProblem, assembler: Assembler, keeper: Keeper, stop: Stop, deadline_s: float
) -> None:
    """Of plans as good as the best, has the keeper see those that leave no device idle, and need the least memory.

    By dynamic programming over cuts, whoever found the best, so that every solver gives the same plan; where that
    cannot say what a stage takes, or cuts are many, by a model, which looks for more devices only.

    Raises:
        OutOfTimeError: the time is up.
    """
    quick = problem.space.complete and problem.space.size <= TIE_CUTS and works_on_cuts(problem)
    if keeper.best is None or problem.request.gap:
        return
    hearing = Hearing(problem, assembler, keeper, stop, deadline_s, DynamicProgram())
    if not quick:
        if keeper.best.candidate.num_devices < problem.most_stages:
            employ_idle_devices(problem, hearing)
        return
    for candidate in sorted(problem.undominated, key=lambda candidate: -candidate.num_devices):
        most_s = keeper.best_s * (1 + TOLERANCE)
        if candidate.num_devices < keeper.best.candidate.num_devices or problem.bound_s(candidate) > most_s:
            continue
        found = best_partition(partition_problem(problem, candidate), stop)
        if found is not None and found.value_s * candidate.num_microbatches <= most_s:
            claimed_s = found.value_s * candidate.num_microbatches
            hearing.offer(Partition(candidate, problem.space.stages_of(found.cuts)), claimed_s, claimed_s)


def _compare(hearing: Hearing, formulation: Formulation, other: Formulation) -> None:
    """Another method, asked without being told what is known, must find the same optimum."""
    witness = Witness(hearing.problem.request)
    apart = replace(hearing, keeper=witness, heard=other, found_by=other.name)
    try:
        proven = apart.hear(other, hearing.problem)
    except OutOfTimeError:
        return
    slack = 1 + max(TOLERANCE, formulation.tolerance, other.tolerance)
    least_s = hearing.best_s * (1 - hearing.problem.request.gap)
    if proven and not least_s <= witness.best_s * slack <= hearing.best_s * slack**2:
        claim = f"{formulation.name} says that {hearing.best_s!r} s is the least"
        raise SolverDisagreementError(f"{claim}, and {other.name} that {witness.best_s!r} s is")
