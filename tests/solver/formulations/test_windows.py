"""The bound of the cheapest cuts holds, whatever is known before, and nearly closes on a graph of cells."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bapipe.formulations.bottleneck import DynamicProgram
from bapipe.formulations.cp_sat.solve import CpSat
from bapipe.formulations.cp_sat.windows import search_windows
from bapipe.planner import plan
from bapipe.problem import Communication, Edge, Layer, Link, PlanRequest
from judges.hearings import hearing_of, problem_of, unaided
from judges.instances import cluster, layer, request
from judges.strategies import reproducible, requests

MODES = st.sampled_from(("overlap", "serial"))


@settings(reproducible, max_examples=40)
@given(MODES.flatmap(lambda mode: requests(objective="bottleneck", communication=mode)))
def test_no_partition_is_below_the_bound(request: PlanRequest) -> None:
    optimum_s = unaided(request, DynamicProgram())
    assume(optimum_s)
    assert optimum_s is not None
    problem = problem_of(request)
    hearing = hearing_of(problem, CpSat())

    bound_s = search_windows(problem, hearing, 0.0)

    assert problem.least_s * (1 - 1e-9) <= bound_s <= optimum_s * (1 + 1e-9)
    assert hearing.best_s >= optimum_s * (1 - 1e-9)


def cells(count: int, communication: Communication) -> PlanRequest:
    """Cells that each read the outputs of the two before, with three branches of two layers inside."""
    outputs = ["in0", "in1"]
    layers: list[Layer] = [layer(name, 0.1, 0.2, output_bytes_per_sample=40.0) for name in outputs]
    edges: list[Edge] = []
    for c in range(count):
        for b in range(3):
            first, second = f"c{c}b{b}x", f"c{c}b{b}y"
            layers.append(layer(first, 0.3 + 0.1 * ((c + b) % 4), 0.5, output_bytes_per_sample=60.0))
            layers.append(layer(second, 0.2 + 0.1 * (b % 3), 0.4, output_bytes_per_sample=20.0))
            edges += [Edge(source=outputs[-1 - b % 2], target=first), Edge(source=first, target=second)]
        layers.append(layer(f"c{c}out", 0.1, 0.1, output_bytes_per_sample=40.0))
        edges += [Edge(source=f"c{c}b{b}y", target=f"c{c}out") for b in range(3)]
        outputs.append(f"c{c}out")
    link = Link(bandwidth_bytes_per_s=100.0)
    settings = {"objective": "bottleneck", "communication": communication, "edges": tuple(edges)}
    return request(layers, cluster(4, link), 1, **settings)


@pytest.mark.parametrize("mode", ["overlap", "serial"])
def test_bound_and_plan_meet_on_a_graph_of_cells(mode: Communication) -> None:
    asked = cells(6, mode)
    problem = problem_of(asked, limit=50)
    assert not problem.space.complete
    hearing = hearing_of(problem, CpSat())

    bound_s = search_windows(problem, hearing, 0.0)

    optimum = plan(asked)
    assert optimum.status == "optimal"
    assert optimum.prediction is not None
    assert bound_s <= optimum.prediction.bottleneck_s * (1 + 1e-9)
    assert bound_s >= hearing.best_s * 0.96


def test_the_same_request_gives_the_same_plan() -> None:
    asked = cells(4, "serial").model_copy(update={"solver": "cp-sat"})
    one, other = plan(asked), plan(asked)
    assert one.status == "optimal"
    assert (one.stages, one.schedule) == (other.stages, other.schedule)
