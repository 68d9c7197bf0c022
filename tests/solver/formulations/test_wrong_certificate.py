"""OR-Tools 9.15.6755 certifies a wrong optimum on a public input, cut down here to three parts on two devices.

A plain model of the placement: two devices, one behind the other, one of them a CPU; which one is a decision that
enforces which times count. The answer is wrong as soon as the large coefficient reaches 2^31, and right below. It is
issue 5293 of google/or-tools, where `presolve_inclusion_work_limit=0` is found to avoid it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import ortools
import pytest
from ortools.sat.python import cp_model

from bapipe.errors import SolverDisagreementError
from bapipe.formulations.problem import BottleneckProblem
from bapipe.formulations.protocol import Listener
from bapipe.planner import plan
from bapipe.problem import Cluster, Device, DeviceKind, Edge, Layer, LayerTime, ModelProfile, PlanRequest

INPUT = json.loads((Path(__file__).parent / "bert_l-3_three_parts.json").read_text())
PARTS: list[dict[str, Any]] = INPUT["parts"]
EDGES: list[tuple[str, str]] = [tuple(edge) for edge in INPUT["edges"]]
WORKAROUND = {"presolve_inclusion_work_limit": 0}
WRONG_NS = 2_828_706_139


def true_optimum_ns() -> int:
    """The least largest load over every placement, one by one."""
    names = [part["name"] for part in PARTS]
    loads = []
    for cpu, *places in product((0, 1), repeat=1 + len(PARTS)):
        place = dict(zip(names, places, strict=True))
        if all(place[source] <= place[target] for source, target in EDGES):
            kinds = [("cpu_ns" if device == cpu else "accelerator_ns") for device in (0, 1)]
            loads.append(max(sum(p[kinds[d]] for p in PARTS if place[p["name"]] == d) for d in (0, 1)))
    return min(loads)


def claimed_optimum_ns(**parameters: int) -> float:
    """What CP-SAT says is optimal."""
    model = cp_model.CpModel()
    in_front = {part["name"]: model.new_bool_var(f"{part['name']} in front") for part in PARTS}
    cpu = [model.new_bool_var(f"device {device} is the CPU") for device in (0, 1)]
    model.add(sum(cpu) == 1)
    for source, target in EDGES:
        model.add_implication(in_front[target], in_front[source])
    load = model.new_int_var(0, sum(part["accelerator_ns"] + part["cpu_ns"] for part in PARTS), "load")
    for device in (0, 1):
        here = {name: 1 - front if device else front for name, front in in_front.items()}
        for kind, enforced in (("accelerator_ns", ~cpu[device]), ("cpu_ns", cpu[device])):
            work = sum(part[kind] * here[part["name"]] for part in PARTS if part[kind])
            model.add(work <= load).only_enforce_if(enforced)
    model.minimize(load)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    assert solver.solve(model) == cp_model.OPTIMAL
    return float(solver.objective_value)


def test_the_true_optimum_leaves_the_cpu_without_the_large_part() -> None:
    assert true_optimum_ns() == 122_987_210


def test_or_tools_certifies_a_wrong_optimum() -> None:
    claimed = claimed_optimum_ns()
    if claimed == true_optimum_ns():
        pytest.skip(f"OR-Tools {ortools.__version__} finds the right optimum: the workaround can go")
    assert claimed == WRONG_NS


def test_the_workaround_avoids_it() -> None:
    assert claimed_optimum_ns(**WORKAROUND) == true_optimum_ns()


def request(devices: tuple[str, str], solver: str) -> PlanRequest:
    """The same input as a request, with the devices in a given order; each must have a part, or be the last."""
    kinds = ("accelerator", "cpu")
    layers = [
        Layer(
            id=part["name"],
            times=tuple(
                LayerTime(device_kind=kind, microbatch_size=1, forward_s=part[f"{kind}_ns"] / 1e9, backward_s=0.0)
                for kind in kinds
            ),
        )
        for part in PARTS
    ]
    edges = tuple(Edge(source=source, target=target) for source, target in EDGES)
    return PlanRequest(
        profile=ModelProfile(name="three parts", layers=tuple(layers), edges=edges),
        cluster=Cluster(
            kinds=tuple(DeviceKind(name=kind) for kind in kinds),
            devices=tuple(Device(id=kind, kind=kind) for kind in devices),
        ),
        batch_size=1,
        objective="bottleneck",
        communication="none",
        solver=solver,
    )


@pytest.mark.parametrize("solver", ["auto", "cp-sat", "milp"])
@pytest.mark.parametrize("devices", [("accelerator", "cpu"), ("cpu", "accelerator")])
def test_our_models_find_the_true_optimum(devices: tuple[str, str], solver: str) -> None:
    found = plan(request(devices, solver))

    assert found.status == "optimal"
    assert found.prediction is not None
    assert found.prediction.bottleneck_s == pytest.approx(true_optimum_ns() / 1e9, rel=1e-9)


@dataclass(frozen=True)
class Certifier:
    """Certifies what OR-Tools does."""

    name: str = "raw OR-Tools"
    tolerance: float = 1e-9
    works_on_graph: bool = True

    def solve(self, problem: BottleneckProblem, listener: Listener) -> bool:
        """Nothing is below the wrong optimum, it says."""
        listener.bound(WRONG_NS / 1e9)
        return True


def test_the_guard_refuses_the_wrong_certificate() -> None:
    asked = request(("accelerator", "cpu"), "cp-sat")
    with pytest.raises(SolverDisagreementError, match=r"raw OR-Tools says that nothing is below 2\.828706139 s"):
        plan(asked, formulation=Certifier())


def test_the_guard_asks_another_method_where_nothing_better_is_known_yet() -> None:
    """With the CPU in front, the start of the search is no better than the wrong certificate."""
    with pytest.raises(SolverDisagreementError, match="raw OR-Tools"):
        plan(request(("cpu", "accelerator"), "cp-sat"), formulation=Certifier())
