"""No solver's word is taken: formulations that are wrong in every way, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from bapipe.errors import SolverDisagreementError
from bapipe.formulations.problem import BottleneckProblem, Partition
from bapipe.formulations.protocol import Listener
from bapipe.planner import plan
from bapipe.problem import PlanRequest
from judges.instances import layer, request

EVEN = ((0, 1), (2, 3))
"""The optimum of `asked`, of 4 s a micro-batch."""

UNEVEN = ((0,), (1, 2, 3))


@dataclass(frozen=True)
class Liar:
    """Says what it is made to say."""

    say: Callable[[BottleneckProblem, Listener], bool]
    name: str = "liar"
    tolerance: float = 1e-9
    works_on_graph: bool = True

    def solve(self, problem: BottleneckProblem, listener: Listener) -> bool:
        """As a formulation."""
        return self.say(problem, listener)


def asked() -> PlanRequest:
    layers = [layer(f"l{k}", 1.0, 1.0) for k in range(4)]
    return request(layers, 2, 1, objective="bottleneck", communication="none", idle_devices=False)


def offer(problem: BottleneckProblem, listener: Listener, stages: tuple[tuple[int, ...], ...], most_s: float) -> bool:
    return listener.offer(Partition(problem.candidates[0], stages), most_s)


def test_a_partition_that_needs_more_than_claimed_is_an_error() -> None:
    with pytest.raises(SolverDisagreementError, match=r"liar says .* and 5.0 s; timed again, it needs 6.0 s"):
        plan(asked(), formulation=Liar(lambda problem, listener: offer(problem, listener, UNEVEN, 5.0)))


def test_a_bound_above_a_plan_that_is_known_is_an_error() -> None:
    def say(problem: BottleneckProblem, listener: Listener) -> bool:
        listener.bound(4.1)
        return True

    with pytest.raises(SolverDisagreementError, match=r"liar says that nothing is below 4.1 s; .* has a plan of 4.0 s"):
        plan(asked(), formulation=Liar(say))


def test_a_plan_below_a_bound_that_was_claimed_is_an_error() -> None:
    """As OR-Tools did: a wrong optimum is certified where nothing better is known yet."""
    slow = [layer(f"l{k}", 1.0 + 4 * (k == 1), 1.0) for k in range(4)]
    uneven = request(slow, 2, 1, objective="bottleneck", communication="none", idle_devices=False)

    def say(problem: BottleneckProblem, listener: Listener) -> bool:
        listener.bound(listener.best_s)
        return offer(problem, listener, ((0, 1), (2, 3)), 100.0) and offer(problem, listener, ((0,), (1, 2, 3)), 100.0)

    best_s = plan(uneven).proof.lower_bound_s
    assert best_s is not None

    def certify(problem: BottleneckProblem, listener: Listener) -> bool:
        listener.bound(best_s * 1.01)
        return True

    with pytest.raises(SolverDisagreementError, match="liar says that nothing is below"):
        plan(uneven, formulation=Liar(certify))
    assert plan(uneven, formulation=Liar(say)).status == "optimal"


def test_an_optimum_that_another_method_beats_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def say(problem: BottleneckProblem, listener: Listener) -> bool:
        return offer(problem, listener, UNEVEN, 6.0)

    monkeypatch.setattr("bapipe.bottleneck_search.works_on_cuts", lambda problem: False)
    monkeypatch.setattr("bapipe.search.Search._start_from_equal_shares", lambda self, todo, bounds: None)
    monkeypatch.setattr("bapipe.search.Search._start_from_baselines", lambda self, todo: None)
    with pytest.raises(SolverDisagreementError, match=r"liar says that 6.0 s is the least, and dp that 4.0 s is"):
        plan(asked(), formulation=Liar(say))


def test_an_end_without_a_proof_claims_no_more_than_what_any_plan_must_do() -> None:
    layers = [layer(f"l{k}", 1.0, 1.0) for k in range(3)]
    uneven = request(layers, 2, 1, objective="bottleneck", communication="none")
    found = plan(uneven, formulation=Liar(lambda problem, listener: False))
    assert found.status == "feasible"
    assert found.prediction is not None
    assert (found.prediction.bottleneck_s, found.proof.lower_bound_s, found.proof.gap) == (4.0, 3.0, 0.25)
