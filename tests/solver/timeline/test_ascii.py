"""The plain timeline shows what runs when, to scale."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.simulator import Simulation, simulate
from bapipe.timeline import ascii_timeline
from bapipe.timeline.ascii import draw_row
from bapipe.timeline.spans import Span


def test_operations_are_to_scale(simulation: Simulation) -> None:
    """9 s on 36 cells: a forward takes 4, a backward 8."""
    picture = ascii_timeline(simulation, width=len("host0/gpu0 ||") + 36)

    assert picture.splitlines() == [
        "host0/gpu0 |F0--F1--........B0======....B1======|",
        "host0/gpu1 |....F0--B0======F1--B1======........|",
        "           0                 4.500 s      9.000 s",
        "F- forward, B= backward, . idle, numbers are micro-batches",
    ]


def test_the_two_engines_of_a_device_are_drawn_apart(plan_for: Any) -> None:
    plan = plan_for()
    kinds = tuple(kind.model_copy(update={"execution": "async"}) for kind in plan.request.cluster.kinds)
    cluster = plan.request.cluster.model_copy(update={"kinds": kinds})
    stages = (plan.stages[0].model_copy(update={"forward_share": 0.5}), plan.stages[1])
    request = plan.request.model_copy(update={"cluster": cluster})
    split = plan.model_copy(update={"request": request, "stages": stages})

    picture = ascii_timeline(simulate(split), width=len("host0/gpu0 backward ||") + 26)

    assert picture.splitlines()[:3] == [
        "host0/gpu0 forward  |F0--F1--..................|",
        "host0/gpu0 backward |..........B0======B1======|",
        "host0/gpu1          |....F0B0==F1B1==..........|",
    ]


@pytest.mark.parametrize("width", [1, 40, 80, 500])
def test_every_row_is_as_wide_as_asked(simulation: Simulation, width: int) -> None:
    rows = [line for line in ascii_timeline(simulation, width).splitlines() if line.endswith("|")]

    assert {len(row) for row in rows} == {max(width, len("host0/gpu0 ||") + 20)}


def test_a_number_that_does_not_fit_leaves_the_letter_alone() -> None:
    assert draw_row([Span("F", 0.0, 2.0, 0, 123), Span("B", 2.0, 6.0, 0, 123)], 6.0, 6) == "F-B123"


def test_an_operation_narrower_than_a_cell_takes_none_of_its_neighbours() -> None:
    spans = [Span("F", 0.0, 4.9, 0, 0), Span("B", 4.9, 5.1, 0, 0), Span("F", 5.1, 10.0, 0, 1)]

    assert draw_row(spans, 10.0, 10) == "F0---F1---"


def test_a_step_of_no_time_is_idle() -> None:
    assert draw_row([Span("F", 0.0, 0.0, 0, 0)], 0.0, 5) == "....."


def test_the_legend_names_what_occurs(plan_for: Any) -> None:
    free, real = plan_for(), plan_for(cluster="2xV100-16G:pcie3")

    assert "optimizer step" not in ascii_timeline(simulate(free))
    assert "O* optimizer step" in ascii_timeline(simulate(real))
