"""A plan made by hand: two stages of one layer each, two micro-batches, free links."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.pipeline import stage_loads_s
from bapipe.plan import Plan, Prediction, Proof, Schedule, Stage
from bapipe.presets import cluster_from_spec
from bapipe.problem import Cluster, Layer, LayerTime, ModelProfile, PlanRequest
from bapipe.simulator import Simulation, simulate

PlanFor = Callable[..., Plan]


def _layer(name: str) -> Layer:
    time = LayerTime(device_kind="reference", microbatch_size=1, forward_s=1.0, backward_s=2.0)
    return Layer(id=name, times=(time,), parameter_bytes=4, output_bytes_per_sample=1.0)


@pytest.fixture
def plan_for() -> PlanFor:
    """1F1B of two micro-batches; the step takes 9 s."""

    def make(profile_name: str = "two", cluster: str = "2xreference", limit_bytes: int | None = None) -> Plan:
        profile = ModelProfile(name=profile_name, layers=(_layer("a"), _layer("b")))
        devices = _limited(cluster_from_spec(cluster), limit_bytes)
        request = PlanRequest(profile=profile, cluster=devices, batch_size=2)
        stages = tuple(
            _stage(index, layer.id, device.id, limit_bytes)
            for index, (layer, device) in enumerate(zip(profile.layers, devices.devices, strict=True))
        )
        prediction = Prediction(
            step_time_s=9.0, period_s=9.0, bottleneck_s=3.0, samples_per_s=2 / 9, bubble_fraction=1 / 3, devices=()
        )
        plan = Plan(
            status="feasible",
            request=request,
            stages=stages,
            schedule=Schedule(
                name="1f1b",
                num_microbatches=2,
                microbatch_size=1,
                orders=(("0F0", "0F1", "0B0", "0B1"), ("1F0", "1B0", "1F1", "1B1")),
            ),
            prediction=prediction,
            proof=Proof(
                lower_bound_s=None,
                gap=None,
                scope="candidates",
                scope_detail="",
                solver="none",
                tolerance=0.0,
                wall_s=0.0,
            ),
        )
        return _with_figures(plan)

    return make


def _limited(cluster: Cluster, limit_bytes: int | None) -> Cluster:
    if limit_bytes is None:
        return cluster
    kinds = tuple(kind.model_copy(update={"memory_bytes": limit_bytes}) for kind in cluster.kinds)
    return cluster.model_copy(update={"kinds": kinds})


def _stage(index: int, layer: str, device: str, limit_bytes: int | None) -> Stage:
    return Stage(
        index=index,
        layers=(layer,),
        devices=(device,),
        forward_s=1.0,
        backward_s=2.0,
        load_s=3.0,
        peak_memory_bytes=0.0,
        memory_limit_bytes=limit_bytes,
    )


def _with_figures(plan: Plan) -> Plan:
    """The plan with what its simulation says."""
    simulation = simulate(plan)
    loads = stage_loads_s(simulation.cost, plan.request.communication)
    limits = {device.id: memory_limit_bytes(plan.request.cluster, device) for device in plan.request.cluster.devices}
    stages = [
        stage.model_copy(
            update={"load_s": load, "peak_memory_bytes": peak, "memory_limit_bytes": limits[stage.devices[0]]}
        )
        for stage, load, peak in zip(plan.stages, loads, simulation.peak_memory_bytes, strict=True)
    ]
    return plan.model_copy(update={"stages": tuple(stages), "prediction": simulation.prediction(plan.request)})


@pytest.fixture
def simulation(plan_for: PlanFor) -> Simulation:
    """The plan, replayed."""
    return simulate(plan_for())
