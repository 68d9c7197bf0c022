"""The models by themselves, who is asked for what, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.check import check
from bapipe.errors import InvalidInputError
from bapipe.formulations.bottleneck import DynamicProgram
from bapipe.formulations.choice import formulation_for
from bapipe.formulations.cp_sat.solve import CpSat
from bapipe.formulations.milp.solve import Milp
from bapipe.planner import plan
from bapipe.problem import Device, Edge, Link, Pin, PlanRequest, TiedParameters
from judges.hearings import problem_of, unaided
from judges.instances import cluster, layer, request
from judges.strategies import reproducible, requests, tight_requests

pytestmark = pytest.mark.filterwarnings("ignore:PULP_CBC_CMD is deprecated")
MODES = st.sampled_from(("none", "overlap", "serial"))
MODELS = (CpSat(), Milp())


def asked(**fields: Any) -> PlanRequest:
    """Six layers with a skip from the first to the fourth, for three devices."""
    layers = [layer(f"l{k}", 1.0 + k % 3, 2.0, output_bytes_per_sample=4.0) for k in range(6)]
    edges = [Edge(source=f"l{k}", target=f"l{k + 1}") for k in range(5)] + [Edge(source="l0", target="l3")]
    settings = {"edges": tuple(edges), "objective": "bottleneck", "communication": "serial"} | fields
    return request(layers, settings.pop("devices", cluster(3, Link(bandwidth_bytes_per_s=8.0))), 4, **settings)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_needs_neither_a_cap_nor_a_start(model: Any) -> None:
    @settings(reproducible, max_examples=25)
    @given(MODES.flatmap(lambda mode: requests(objective="bottleneck", communication=mode)))
    def try_one(request: PlanRequest) -> None:
        optimum_s = unaided(request, DynamicProgram())
        found_s = unaided(request, model)
        assert found_s == (None if optimum_s is None else pytest.approx(optimum_s, rel=model.tolerance))

    try_one()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_needs_no_cap_where_memory_binds(model: Any) -> None:
    @settings(reproducible, max_examples=10)
    @given(MODES.flatmap(lambda mode: tight_requests(objective="bottleneck", communication=mode)))
    def try_one(request: PlanRequest) -> None:
        optimum_s = unaided(request, DynamicProgram())
        found_s = unaided(request, model)
        assert found_s == (None if optimum_s is None else pytest.approx(optimum_s, rel=model.tolerance))

    try_one()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "dp"),
        ({"solver": "dp"}, "dp"),
        ({"solver": "cp-sat"}, "cp-sat"),
        ({"solver": "milp"}, "milp:HiGHS"),
        ({"solver": "milp:PULP_CBC_CMD"}, "milp:PULP_CBC_CMD"),
        ({"pins": (Pin(layer="l1", device="d1"),)}, "dp"),
        ({"tied_parameters": (TiedParameters(layers=("l0", "l5"), parameter_bytes=8),)}, "dp"),
        ({"devices": cluster(3, skip_tensors="direct")}, "cp-sat"),
    ],
)
def test_the_proof_names_who_was_asked(fields: dict[str, Any], name: str) -> None:
    found = plan(asked(**fields))
    assert found.status == "optimal"
    assert found.proof.solver == name
    assert found.proof.tolerance == (1e-6 if name.startswith("milp") else 1e-9)
    assert check(found) == []


@pytest.mark.parametrize("solver", ["cp-sat", "milp"])
@settings(reproducible, max_examples=25)
@given(requests(objective="bottleneck", communication="none", layers=(3, 7), devices=(2, 4)))
def test_a_model_leaves_no_device_idle_that_need_not_be(solver: str, request: PlanRequest) -> None:
    by_dp, by_model = plan(request), plan(request.model_copy(update={"solver": solver}))
    assert len(by_model.stages) == len(by_dp.stages)


def test_auto_takes_a_model_where_there_are_too_many_cuts() -> None:
    assert isinstance(formulation_for(problem_of(asked(), limit=3)), CpSat)
    assert isinstance(formulation_for(problem_of(asked())), DynamicProgram)


def test_devices_of_several_speeds_share_the_work_by_their_speed() -> None:
    layers = [layer(f"l{k}", 1.0, 0.0) for k in range(6)]
    devices = cluster(2)
    fast = Device(id="fast", kind=devices.devices[0].kind, speed=2.0)
    mixed = devices.model_copy(update={"devices": (fast, devices.devices[1])})
    found = plan(request(layers, mixed, 1, objective="bottleneck", communication="none"))
    assert [len(stage.layers) for stage in found.stages] == [4, 2]
    assert (found.status, found.proof.solver) == ("optimal", "dp")


@pytest.mark.parametrize("solver", ["cp-sat", "milp", "milp:PULP_CBC_CMD"])
def test_a_gap_is_kept(solver: str) -> None:
    best, found = plan(asked()), plan(asked(solver=solver, gap=0.3))
    assert best.prediction is not None
    assert found.prediction is not None
    assert found.proof.gap is not None
    assert found.proof.gap <= 0.3 + 1e-9
    assert found.prediction.bottleneck_s * 0.7 <= best.prediction.bottleneck_s * (1 + 1e-6)


@pytest.mark.parametrize("solver", ["dp", "cp-sat", "milp"])
def test_what_fits_nowhere_is_infeasible(solver: str) -> None:
    too_small = cluster(3, Link(bandwidth_bytes_per_s=8.0), memory_bytes=1)
    found = plan(asked(solver=solver, devices=too_small))
    assert found.status == "infeasible"
    assert found.explanation


@pytest.mark.parametrize("fields", [{"pins": (Pin(layer="l0", device="d2"), Pin(layer="l5", device="d0"))}])
def test_pins_that_cannot_be_kept_are_infeasible(fields: dict[str, Any]) -> None:
    assert plan(asked(**fields)).status == "infeasible"


def faults_of(asked: PlanRequest) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInputError) as raised:
        plan(asked)
    return [(fault.code, fault.pointer) for fault in raised.value.faults]


def test_a_solver_that_cannot_be_asked_is_refused_before_any_work() -> None:
    direct = cluster(3, skip_tensors="direct")
    assert faults_of(asked(solver="milp:CPLEX_CMD")) == [("solver_not_found", "/solver")]
    assert faults_of(asked(solver="milp:HIGS")) == [("unknown_value", "/solver")]
    assert faults_of(asked(solver="dp", devices=direct)) == [("unsupported", "/solver")]
    assert faults_of(asked(solver="milp", objective="step-time")) == [("unsupported", "/solver")]


def test_a_name_that_is_no_solver_is_a_fault_of_the_request() -> None:
    with pytest.raises(ValueError, match=r"there is no solver 'highs'; use auto, dp, cp-sat, milp"):
        asked(solver="highs")
