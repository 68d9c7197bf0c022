"""From a request to a plan: the search, in this process or in a child with a hard wall clock, and its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

from bapipe.assembly import Found
from bapipe.baselines import with_speedups
from bapipe.candidates import WITHOUT_FLUSH, allowed_schedules, left_out, microbatch_sizes
from bapipe.cost.cut_costs import costed_by_shape
from bapipe.cuts import MAX_CUTS
from bapipe.emulation.prediction import fifo_warnings
from bapipe.errors import TimeLimitError
from bapipe.formulations.base import TOLERANCE
from bapipe.formulations.protocol import Formulation
from bapipe.isolation import OnCutShort, search_in_child
from bapipe.outcome import OnProgress, Outcome, Progress, relative_gap
from bapipe.plan import Plan, Proof, Status
from bapipe.problem import PlanRequest
from bapipe.quantities import counted
from bapipe.schedules.forward_backward import FIXED_SHARES
from bapipe.search import Search
from bapipe.supported import assumptions, refuse_unsupported

__all__ = ["Progress", "plan", "plan_isolated", "validate"]


def validate(request: PlanRequest) -> tuple[str, ...]:
    """What a plan for `request` would assume.

    Raises:
        InvalidInputError: `unsupported` for everything that can be said but is not searched yet.
    """
    refuse_unsupported(request)
    return assumptions(request)


def plan(
    request: PlanRequest,
    *,
    on_progress: OnProgress = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    formulation: Formulation | None = None,
    solver_log: bool = False,
) -> Plan:
    """The best plan for `request` within its time limit, with its proof; in this process, so the limit is kept only
    between the steps of a formulation (`plan_isolated` keeps it whatever happens).

    `formulation` None: the one that `request.solver` names. `solver_log`: what the solver says goes to stderr.

    Raises:
        InvalidInputError: what is not searched yet.
        TimeLimitError: no plan was found in time, and none was ruled out.
    """
    started = time.monotonic()
    validate(request)
    search = Search(request, started + request.time_limit_s, on_progress, should_stop, formulation, solver_log)
    return _answer(request, search.run(), started)


def plan_isolated(
    request: PlanRequest,
    *,
    on_progress: OnProgress = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    formulation: Formulation | None = None,
    memory_limit_bytes: int | None = None,
    solver_log: bool = False,
    on_cut_short: OnCutShort = lambda cut: None,
) -> Plan:
    """`plan` in a child process, which is killed when its time is up, when it holds more than `memory_limit_bytes` in
    memory, or when `should_stop()` turns true; the best plan that it has reported is kept, and `on_cut_short` told why.

    Raises:
        InvalidInputError: what is not searched yet.
        TimeLimitError: no plan was found in time, and none was ruled out.
        BaPipeError: the child died before it had found anything.
    """
    started = time.monotonic()
    validate(request)
    outcome = search_in_child(
        request,
        started,
        on_progress,
        should_stop,
        formulation,
        memory_limit_bytes,
        on_cut_short,
        solver_log=solver_log,
    )
    return _answer(request, outcome, started)


def _answer(request: PlanRequest, outcome: Outcome, started_s: float) -> Plan:
    """The plan that `outcome` is, for a search begun at `started_s` on the monotonic clock."""
    found = outcome.best
    if found is None and not outcome.exhausted:
        detail = f"no plan was found within {request.time_limit_s:g} s, and none was ruled out; raise the time limit"
        raise TimeLimitError(detail)
    proof = _proof(request, outcome, time.monotonic() - started_s)
    warnings = (*assumptions(request), *_cut_warnings(request, outcome))
    if found is None:
        return Plan(
            status="infeasible",
            request=request,
            proof=proof,
            baselines=outcome.baselines,
            explanation=outcome.explanation,
            warnings=warnings,
        )
    made = Plan(
        status=_status(proof),
        request=request,
        stages=found.stages,
        schedule=found.schedule(request),
        prediction=found.prediction,
        proof=proof,
        baselines=with_speedups(outcome.baselines, found.pace_s),
        explanation=(*found.explanation, *outcome.explanation),
        warnings=(*_staleness_warnings(found), *warnings),
    )
    return made.model_copy(update={"warnings": (*made.warnings, *fifo_warnings(made))})


def _status(proof: Proof) -> Status:
    return "optimal" if proof.gap is not None and proof.gap <= max(TOLERANCE, proof.tolerance) else "feasible"


def _proof(request: PlanRequest, outcome: Outcome, wall_s: float) -> Proof:
    objective_s = None if outcome.best is None else outcome.best.objective_s
    bound_s = outcome.lower_bound_s if objective_s is not None else None
    gap = relative_gap(objective_s, bound_s)
    if request.objective == "bottleneck" and outcome.best is not None and bound_s is not None:
        bound_s /= outcome.best.candidate.num_microbatches
    return Proof(
        lower_bound_s=bound_s,
        gap=gap,
        scope="candidates",
        scope_detail=_scope(request, outcome),
        solver=outcome.prover,
        tolerance=outcome.tolerance,
        wall_s=wall_s,
    )


def _scope(request: PlanRequest, outcome: Outcome) -> str:
    small = left_out(request)
    sizes = ", ".join(str(size) for size in microbatch_sizes(request) if size not in small)
    schedules = allowed_schedules(request)
    shares = f"; forward shares {_shares(request)} of each stage" if "fbp-as" in schedules else ""
    return (
        f"schedules {', '.join(schedules)}{shares}; micro-batches of {sizes}; one stage a device on the first "
        f"devices in the order given; cuts: {_cuts(request, outcome)}"
    )


def _shares(request: PlanRequest) -> str:
    """The parts of split devices that are tried, in words."""
    fixed = [str(Fraction(share).limit_denominator(100)) for share in FIXED_SHARES]
    return ", ".join(fixed if costed_by_shape(request) else ["F / (F + B)", *fixed])


def _cuts(request: PlanRequest, outcome: Outcome) -> str:
    return request.cuts if outcome.complete else "topological-order"


def _staleness_warnings(found: Found) -> list[str]:
    """What a schedule without a flush changes of the training."""
    candidate = found.candidate
    if candidate.schedule not in WITHOUT_FLUSH:
        return []
    size, older = counted(candidate.microbatch_size, "sample"), counted(candidate.num_devices - 1, "update")
    return [
        f"{candidate.schedule} has no flush, and does not train as one device would: weights are updated after every "
        f"micro-batch of {size}, by gradients of weights up to {older} older; its time is the period of repeated steps"
    ]


def _cut_warnings(request: PlanRequest, outcome: Outcome) -> list[str]:
    if outcome.complete:
        return []
    return [f"the model can be cut in more than {MAX_CUTS} ways: only cuts along one topological order were searched"]
