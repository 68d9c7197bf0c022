"""A plan made by hand: two stages of one layer each, two micro-batches, free links."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bapipe.plan import Plan, Prediction, Proof, Schedule, Stage
from bapipe.presets import cluster_from_spec
from bapipe.problem import Layer, LayerTime, ModelProfile, PlanRequest
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
        request = PlanRequest(profile=profile, cluster=cluster_from_spec(cluster), batch_size=2)
        stages = tuple(
            Stage(
                index=index,
                layers=(layer.id,),
                devices=(device.id,),
                forward_s=1.0,
                backward_s=2.0,
                load_s=3.0,
                peak_memory_bytes=0.0,
                memory_limit_bytes=limit_bytes,
            )
            for index, (layer, device) in enumerate(zip(profile.layers, request.cluster.devices, strict=True))
        )
        return Plan(
            status="feasible",
            request=request,
            stages=stages,
            schedule=Schedule(
                name="1f1b",
                num_microbatches=2,
                microbatch_size=1,
                orders=(("0F0", "0F1", "0B0", "0B1"), ("1F0", "1B0", "1F1", "1B1")),
            ),
            prediction=Prediction(
                step_time_s=9.0, period_s=9.0, bottleneck_s=3.0, samples_per_s=2 / 9, bubble_fraction=1 / 3, devices=()
            ),
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

    return make


@pytest.fixture
def simulation(plan_for: PlanFor) -> Simulation:
    """The plan, replayed."""
    return simulate(plan_for())
