"""The search: candidates best first by lower bound, pruned by the incumbent; inside a candidate, the partition.

Step time: data parallelism is simulated as it is. Each pipeline candidate is first improved from the bottleneck
optimum and from equal shares, cheapest replays first, which gives an incumbent early; then the candidates are proven,
least bound first, until none can beat the incumbent. Bottleneck: one dynamic programme a candidate.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bapipe.assembly import Assembler, Draft
from bapipe.baselines import measure_baselines
from bapipe.bottleneck_search import search_bottleneck, settle_ties
from bapipe.bounds import balanced_bound_s, front_bounds
from bapipe.candidates import DATA_PARALLEL, WITHOUT_FLUSH, Candidate, candidates
from bapipe.cost.cut_costs import CutCosts, cut_costs, sends_past_stages
from bapipe.cuts import cut_space
from bapipe.equal_shares import equal_shares
from bapipe.errors import InvalidInputError, SolverDisagreementError
from bapipe.explain import explain_infeasible
from bapipe.formulations.base import TOLERANCE, OutOfTimeError, PartitionProblem, PartitionResult, Stop
from bapipe.formulations.bottleneck import best_partition
from bapipe.formulations.choice import formulation_for
from bapipe.formulations.period import least_period
from bapipe.formulations.problem import BottleneckProblem
from bapipe.formulations.protocol import Formulation
from bapipe.formulations.step_time import Judge, StepTimeSearch
from bapipe.incumbent import Incumbent
from bapipe.outcome import OnProgress, Outcome, Progress
from bapipe.plan import Baseline
from bapipe.problem import PlanRequest
from bapipe.relief import is_constrained, relief

IMPROVING_SHARE = 0.4
"""Of the time limit, the most that goes into first incumbents before the proofs start."""

EXPLAINING_S = 0.3
"""At least so long may be looked for what would make an infeasible request feasible."""

REPORT_EVERY_S = 0.5
"""Between reports of a search that has found nothing better."""

STARTING_OPERATIONS = 4_000
"""Stages × micro-batches up to which a candidate is simulated before the search."""

TIE_BATCHES = 40
"""Batches of nodes that may go into preferring one of several best plans; a count, for the same answer every time."""

SURPLUS_CUTS = 3_000
"""The most cuts among which devices without use are looked for."""


@dataclass
class Search:
    """One search over the candidates of `request`, until `deadline_s` on the monotonic clock."""

    request: PlanRequest
    deadline_s: float
    on_progress: OnProgress = lambda progress: None
    should_stop: Stop = lambda: False
    formulation: Formulation | None = None
    solver_log: bool = False

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._assembler = Assembler(self.request)
        self._baselines: list[Baseline] = []
        self._costs: dict[int, CutCosts] = {}
        self._incumbent = Incumbent(self.request, self._report, self._report_now_and_then)
        self._complete = self._exhausted = False
        self._explanation: tuple[str, ...] = ()
        self._prover, self._tolerance = "dp + branch and bound", TOLERANCE
        self._phase = "starting"
        self._reported = self._started

    def run(self) -> Outcome:
        """Searches until nothing can be better, or the time is up."""
        todo = candidates(self.request)
        self._start_from_baselines(todo)
        self._space = cut_space(self.request.profile, self.request.cuts)
        self._complete = self._space.complete
        try:
            if self.request.objective == "bottleneck":
                self._start_from_equal_shares(todo, {})
                self._bottleneck(todo)
            else:
                bounds = self._first_bounds(todo)
                self._start_from_equal_shares(todo, bounds)
                self._step_time(bounds)
            self._explanation = (
                self._why_nothing_fits(todo) if self._incumbent.best is None else self._surplus_devices()
            )
        except OutOfTimeError:
            pass
        return self._outcome()

    def _close(self) -> None:
        """No candidate is left that could beat the incumbent by more than the gap: reports at once what that proves."""
        self._exhausted = True
        self._incumbent.close()
        self._report()

    def _outcome(self) -> Outcome:
        bound_s = None if self._exhausted and self._incumbent.best is None else self._incumbent.bound_s
        return Outcome(
            self._incumbent.found,
            bound_s,
            self._exhausted,
            self._complete,
            tuple(self._baselines),
            self._explanation,
            self._prover,
            self._tolerance,
        )

    def _report(self) -> None:
        self._reported = time.monotonic()
        self.on_progress(Progress(self._phase, self._outcome()))

    def _report_now_and_then(self) -> None:
        """So that waiting shows progress."""
        if time.monotonic() - self._reported > REPORT_EVERY_S:
            self._report()

    def _start_from_baselines(self, todo: list[Candidate]) -> None:
        allowed = set(todo)
        for baseline, found in measure_baselines(self.request, self._assembler):
            self._baselines.append(baseline)
            if found is not None and found.candidate in allowed and found.all_reduce == "overlapped":
                self._incumbent.take(found)
        self._report()

    def _start_from_equal_shares(self, todo: list[Candidate], bounds: dict[Candidate, float]) -> None:
        """So that there is a plan before any formulation is asked: all devices, candidates of few operations that may
        beat the incumbent.
        """
        most = max((candidate.num_devices for candidate in todo), default=0)
        for candidate in todo:
            operations = candidate.num_devices * candidate.num_microbatches
            if candidate.schedule == DATA_PARALLEL or candidate.num_devices < most or operations > STARTING_OPERATIONS:
                continue
            if bounds.get(candidate, 0.0) >= self._incumbent.threshold_s:
                continue
            if self._stop():
                raise OutOfTimeError
            for cuts in equal_shares(self._problem(candidate), self._space.chain):
                self._incumbent.take(self._draft(candidate, PartitionResult(cuts, float("inf"))))

    def _surplus_devices(self) -> tuple[str, ...]:
        """How many devices reach the same bottleneck; not looked for among very many cuts.

        Raises:
            OutOfTimeError: when the time is up; what is proven stays proven.
        """
        best, stages = self._incumbent.best, len(self.request.cluster.devices)
        if best is None or self.request.objective != "bottleneck" or self._space.size > SURPLUS_CUTS:
            return ()
        if sends_past_stages(self.request, self._space.graph):
            return ()
        fewest = best.candidate.num_devices
        while fewest > 1:
            fewer = best_partition(self._problem(replace(best.candidate, num_devices=fewest - 1)), self._stop)
            if fewer is None or fewer.value_s > max(best.loads_s) * (1 + TOLERANCE):
                break
            fewest -= 1
        if fewest == stages:
            return ()
        return (f"{fewest} devices reach the same bottleneck: {stages - fewest} of {stages} are surplus",)

    def _why_nothing_fits(self, todo: list[Candidate]) -> tuple[str, ...]:
        pipelines = [self._problem(c) for c in todo if c.schedule != DATA_PARALLEL]
        replicated = [self._assembler.data_parallel(c) for c in todo if c.schedule == DATA_PARALLEL]
        until = max(self.deadline_s, time.monotonic() + EXPLAINING_S)

        def ask() -> str:
            return relief(self.request, self._space, todo, self.should_stop, until)

        return explain_infeasible(
            self.request,
            pipelines,
            replicated,
            lambda: self.should_stop() or time.monotonic() > until,
            ask if is_constrained(self.request) else None,
        )

    def _bottleneck(self, todo: list[Candidate]) -> None:
        self._phase = "proving"
        if not todo:
            return self._close()
        problem = BottleneckProblem(self.request, self._space, tuple(todo))
        formulation = self.formulation or formulation_for(problem, log=self.solver_log)
        self._prover, self._tolerance = formulation.name, formulation.tolerance
        self._complete = self._complete or formulation.works_on_graph
        if search_bottleneck(problem, formulation, self._assembler, self._incumbent, self._stop, self.deadline_s):
            self._close()
            settle_ties(problem, self._assembler, self._incumbent, self._stop, self.deadline_s)
        return None

    def _step_time(self, bounds: dict[Candidate, float]) -> None:
        """`bounds`: of every pipeline."""
        self._without_flush([candidate for candidate in bounds if candidate.schedule in WITHOUT_FLUSH])
        pipelines = [candidate for candidate in bounds if candidate.schedule not in WITHOUT_FLUSH]
        self._improve(pipelines, bounds)
        self._prove_all(pipelines, bounds)
        self._close()
        self._settle_ties(pipelines, bounds)

    def _first_bounds(self, todo: list[Candidate]) -> dict[Candidate, float]:
        """Of every pipeline, what it cannot beat. Before anything is simulated, that is as if layers were divisible."""
        self._incumbent.bound_s = min((self._divisible_bound(candidate) for candidate in todo), default=None)
        for candidate in todo:
            if self._stop():
                raise OutOfTimeError
            if candidate.schedule == DATA_PARALLEL:
                self._incumbent.take(self._assembler.data_parallel(candidate))
        bounds = {candidate: self._bound(candidate) for candidate in todo if candidate.schedule != DATA_PARALLEL}
        self._incumbent.bound_s = min([*bounds.values(), self._incumbent.best_s]) if bounds else None
        return bounds

    def _without_flush(self, endless: list[Candidate]) -> None:
        """Each to its least period, or until it cannot beat the incumbent."""
        for candidate in endless:

            def judge(result: PartitionResult, candidate: Candidate = candidate) -> float:
                draft = self._draft(candidate, result)
                if draft is None or not draft.fits:
                    raise SolverDisagreementError(f"{candidate}: what the recursion finds does not fit or execute")
                self._incumbent.take(draft)
                return draft.objective_s(self.request)

            least_period(self._problem(candidate), judge, lambda: self._incumbent.threshold_s, self._stop)

    def _prove_all(self, pipelines: list[Candidate], bounds: dict[Candidate, float]) -> None:
        """Least bound first; a candidate has the bound of its best division until it comes up, then its tables'."""
        self._phase = "proving"
        queue: list[tuple[float, int, StepTimeSearch | None]] = [(bounds[c], k, None) for k, c in enumerate(pipelines)]
        heapq.heapify(queue)
        while queue and queue[0][0] < self._incumbent.threshold_s:
            bound, order, search = heapq.heappop(queue)
            self._incumbent.note_bound(min(bound, self._incumbent.best_s))
            if search is None:
                search = self._step_time_search(pipelines[order])
                heapq.heappush(queue, (max(bound, search.bound(self.request.gap)), order, search))
            else:
                self._prove(search, queue[0][0] if queue else float("inf"))

    def _settle_ties(self, pipelines: list[Candidate], bounds: dict[Candidate, float]) -> None:
        """Of plans as good as the best, prefers no idle device, then least peak memory, as far as a few batches go."""
        if self._incumbent.best is None or self.request.gap:
            return
        budget = iter(range(TIE_BATCHES))
        as_good = [c for c in pipelines if bounds[c] <= self._incumbent.best_s * (1 + TOLERANCE)]
        for candidate in sorted(as_good, key=lambda c: -c.num_devices):
            while candidate.num_devices >= self._incumbent.best.candidate.num_devices:
                before = self._incumbent.best
                try:
                    self._find_tie(candidate, before, budget)
                except OutOfTimeError:
                    return
                if self._incumbent.best is before:
                    break

    def _find_tie(self, candidate: Candidate, best: Draft, budget: Iterator[int]) -> None:
        def on_bound(bound: float) -> None:
            if next(budget, None) is None:
                raise OutOfTimeError

        def offer(result: PartitionResult) -> None:
            self._offer(candidate, result)

        problem = self._problem(candidate)
        if candidate.num_devices == best.candidate.num_devices:
            problem = problem.below(max(best.peak_memory_bytes))
        search = StepTimeSearch(
            problem, self._stop, self._incumbent.best_s * (1 + 2 * TOLERANCE), offer, on_bound=on_bound
        )
        search.judge = self._judge(candidate)
        search.bound()
        search.prove()

    def _improve(self, pipelines: list[Candidate], bounds: dict[Candidate, float]) -> None:
        """A good partition of each candidate, least bound first, as far as its share of time goes."""
        self._phase = "improving"
        until = self._started + IMPROVING_SHARE * (self.deadline_s - self._started)
        for candidate in sorted(pipelines, key=lambda c: bounds[c]):
            if bounds[candidate] >= self._incumbent.threshold_s:
                continue
            search = StepTimeSearch(self._problem(candidate), lambda: self._stop() or time.monotonic() > until)
            search.judge = self._judge(candidate)
            try:
                for cuts in self._starts(candidate):
                    search.improve(cuts)
            except OutOfTimeError:
                if self._stop():
                    raise
                break
            finally:
                if search.best is not None:
                    self._offer(candidate, search.best)

    def _prove(self, search: StepTimeSearch, rest: float) -> None:
        def on_bound(bound: float) -> None:
            self._incumbent.note_bound(min(bound, rest, self._incumbent.best_s))

        search.on_bound = on_bound
        search.prove(self._incumbent.best_s, self.request.gap)

    def _step_time_search(self, candidate: Candidate) -> StepTimeSearch:
        def offer(result: PartitionResult) -> None:
            self._offer(candidate, result)

        return StepTimeSearch(
            self._problem(candidate), self._stop, self._incumbent.best_s, offer, judge=self._judge(candidate)
        )

    def _judge(self, candidate: Candidate) -> Judge | None:
        """The simulated step time, where the replay of a formulation is only a bound: also on FPGAs whose engines share
        a memory port.
        """
        costs = self._costs_at(candidate.microbatch_size)
        shared = costs.by_shape and self._problem(candidate).engines > 1
        if costs.exact and not shared:
            return None

        def judge(result: PartitionResult) -> float:
            draft = self._draft(candidate, result)
            return draft.objective_s(self.request) if draft is not None and draft.fits else float("inf")

        return judge

    def _draft(self, candidate: Candidate, result: PartitionResult) -> Draft | None:
        """The plan of a partition; None where its devices stop for each other in a circle."""
        try:
            return self._assembler.pipeline(candidate, self._space, result.cuts, result.shares)
        except InvalidInputError as error:
            if any(fault.code != "deadlock" for fault in error.faults):
                raise
            return None

    def _starts(self, candidate: Candidate) -> Iterator[tuple[int, ...]]:
        """Partitions to improve: equal shares, then the bottleneck optimum."""
        yield from equal_shares(self._problem(candidate), self._space.chain)
        balanced = best_partition(self._problem(candidate), self._stop)
        if balanced is not None:
            yield balanced.cuts

    def _problem(self, candidate: Candidate) -> PartitionProblem:
        communication = self.request.communication if self.request.objective == "bottleneck" else "none"
        return PartitionProblem(
            self._costs_at(candidate.microbatch_size),
            candidate.schedule,
            candidate.num_microbatches,
            candidate.num_devices,
            communication,
        )

    def _costs_at(self, microbatch_size: int) -> CutCosts:
        if microbatch_size not in self._costs:
            self._costs[microbatch_size] = cut_costs(self.request, self._space, microbatch_size)
        return self._costs[microbatch_size]

    def _bound(self, candidate: Candidate) -> float:
        """What no partition beats; on FPGAs costed by shape, none whose stages take no more than their layers."""
        bound, least = self._divisible_bound(candidate), self._incumbent.best_s * (1 + 2 * TOLERANCE)
        by_shape = self._costs_at(candidate.microbatch_size).by_shape
        if not by_shape or bound > least or candidate.schedule in WITHOUT_FLUSH:
            return bound
        front = front_bounds(self._problem(candidate).without_tables(), self._stop, least)
        return max(bound, min(least, front.root_s))

    def _divisible_bound(self, candidate: Candidate) -> float:
        costs = self._costs_at(candidate.microbatch_size)
        total = float(costs.work_s[-1])
        if candidate.schedule == DATA_PARALLEL:
            return total * candidate.num_microbatches / candidate.num_devices
        if self.request.objective == "bottleneck" or candidate.schedule in WITHOUT_FLUSH:
            return max(total / candidate.num_devices, costs.largest_layer_s) * candidate.num_microbatches
        count = candidate.num_microbatches
        fraction = self._problem(candidate).fraction
        return balanced_bound_s(total, costs.largest_layer_s, candidate.num_devices, count, fraction)

    def _offer(self, candidate: Candidate, result: PartitionResult) -> None:
        """Simulates what a formulation found: no solver's word is taken."""
        found = self._draft(candidate, result)
        if found is None:
            raise SolverDisagreementError(
                f"{candidate}: the formulation says {result.value_s!r} s, and it is a deadlock"
            )
        scale = candidate.num_microbatches if self.request.objective == "bottleneck" else 1
        expected, actual = result.value_s * scale, found.objective_s(self.request)
        if abs(actual - expected) > TOLERANCE * max(actual, expected) or not found.fits:
            detail = f"the formulation says {expected!r} s, the simulator {actual!r} s, fits: {found.fits}"
            raise SolverDisagreementError(f"{candidate}: {detail}")
        self._incumbent.take(found)

    def _stop(self) -> bool:
        return self.should_stop() or time.monotonic() > self.deadline_s
