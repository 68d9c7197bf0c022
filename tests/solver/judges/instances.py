"""Small requests and plans for tests: chains of layers with one measured time each, at micro-batch size 1."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.memory import StageMemory
from bapipe.cost.pipeline import BoundaryCost, PipelineCost, ReplicaCost, StageCost, stage_loads_s
from bapipe.plan import Plan, Prediction, Proof, Schedule, Stage
from bapipe.problem import Cluster, Device, DeviceKind, Layer, LayerTime, Link, Links, ModelProfile, PlanRequest
from bapipe.schedules import placed_orders
from bapipe.simulator import simulate

KIND = "reference"


def layer(name: str, forward_s: float = 1.0, backward_s: float = 2.0, **fields: Any) -> Layer:
    """A layer with one measured time."""
    time = LayerTime(device_kind=KIND, microbatch_size=1, forward_s=forward_s, backward_s=backward_s)
    return Layer(id=name, times=(time,), **fields)


def cluster(num_devices: int, link: Link | None = None, **fields: Any) -> Cluster:
    """Devices d0, d1, … of one kind on one host; `memory_bytes`, `reserved_bytes`, … go to the kind."""
    own = {name: fields.pop(name) for name in ("receive_buffers", "skip_tensors", "host_nic") if name in fields}
    return Cluster(
        kinds=(DeviceKind(name=KIND, **fields),),
        devices=tuple(Device(id=f"d{k}", kind=KIND) for k in range(num_devices)),
        links=Links(within_host=link or Link()),
        **own,
    )


def request(layers: Sequence[Layer], devices: Cluster | int, batch_size: int, **fields: Any) -> PlanRequest:
    """Layers as a chain; fields of the profile are recognised by name."""
    own = {name: fields.pop(name) for name in ("edges", "groups", "pins", "tied_parameters") if name in fields}
    return PlanRequest(
        profile=ModelProfile(name="test", layers=tuple(layers), **own),
        cluster=cluster(devices) if isinstance(devices, int) else devices,
        batch_size=batch_size,
        **fields,
    )


def even_request(num_layers: int, batch_size: int, **fields: Any) -> PlanRequest:
    """As many equal layers as devices: l0, l1, …"""
    return request([layer(f"l{k}") for k in range(num_layers)], num_layers, batch_size, **fields)


def split(asked: PlanRequest, sizes: Sequence[int]) -> list[list[str]]:
    """The layers in their order, so many a stage."""
    ids = [item.id for item in asked.profile.layers]
    bounds = [sum(sizes[:s]) for s in range(len(sizes) + 1)]
    return [ids[start:end] for start, end in pairwise(bounds)]


def make_plan(
    asked: PlanRequest, stages: Sequence[Sequence[str]], name: str, num_microbatches: int, **schedule: Any
) -> Plan:
    """A legal plan with the simulator's own figures; data parallelism takes all devices."""
    ids = [device.id for device in asked.cluster.devices]
    placed = [ids] if name == "data-parallel" else [[device] for device in ids[: len(stages)]]
    training = asked.task == "training"
    fields = {
        "name": name,
        "num_microbatches": num_microbatches,
        "microbatch_size": asked.batch_size // num_microbatches,
        "orders": placed_orders(name, placed, ids, num_microbatches, training=training),
        **schedule,
    }
    return filled(bare_plan(asked, stages, placed, Schedule(**fields)))


def bare_plan(asked: PlanRequest, stages: Any, placed: Any, schedule: Schedule, recomputed: Any = None) -> Plan:
    """A plan whose figures are yet to be filled in."""
    again = recomputed or [()] * len(stages)
    nothing = {"forward_s": 0.0, "backward_s": 0.0, "load_s": 0.0, "peak_memory_bytes": 0.0, "memory_limit_bytes": None}
    return Plan(
        status="feasible",
        request=asked,
        stages=tuple(
            Stage(index=s, layers=tuple(mine), devices=tuple(placed[s]), recomputed_layers=tuple(again[s]), **nothing)
            for s, mine in enumerate(stages)
        ),
        schedule=schedule,
        prediction=Prediction(
            step_time_s=0.0, period_s=0.0, bottleneck_s=0.0, samples_per_s=0.0, bubble_fraction=0.0, devices=()
        ),
        proof=Proof(
            lower_bound_s=None, gap=None, scope="candidates", scope_detail="", solver="", tolerance=0.0, wall_s=0.0
        ),
    )


def filled(plan: Plan) -> Plan:
    """The plan with the simulator's own figures."""
    devices = {device.id: device for device in plan.request.cluster.devices}
    simulation = simulate(plan)
    loads = stage_loads_s(simulation.cost, plan.request.communication)
    peaks = dict(zip(simulation.devices, simulation.peak_memory_bytes, strict=True))
    stages = [
        stage.model_copy(
            update={
                "forward_s": simulation.cost.stages[s].forward_s,
                "backward_s": simulation.cost.stages[s].backward_s,
                "load_s": loads[s],
                "peak_memory_bytes": max(peaks[device] for device in stage.devices),
                "memory_limit_bytes": min(
                    (
                        limit
                        for device in stage.devices
                        if (limit := memory_limit_bytes(plan.request.cluster, devices[device])) is not None
                    ),
                    default=None,
                ),
            }
        )
        for s, stage in enumerate(plan.stages)
    ]
    return plan.model_copy(update={"stages": tuple(stages), "prediction": simulation.prediction(plan.request)})


def pipeline(
    forward_s: Sequence[float], backward_s: Sequence[float], send_s: Sequence[float], optimizer_s: Sequence[float] = ()
) -> PipelineCost:
    """The cost of a pipeline by its seconds alone; `send_s` of one transfer over each boundary, either way."""
    nothing = StageMemory(0.0, 0.0, 0.0, 0.0, 0.0)
    updates = optimizer_s or [0.0] * len(forward_s)
    stages = tuple(
        StageCost(f, b, nothing, (ReplicaCost(f"d{s}", f, b, update, ()),), ())
        for s, (f, b, update) in enumerate(zip(forward_s, backward_s, updates, strict=True))
    )
    boundaries = tuple(BoundaryCost(f"d{s}", f"d{s + 1}", 1.0, c, c) for s, c in enumerate(send_s))
    return PipelineCost(stages, boundaries, training=True)


def equal_pipeline(num_stages: int, forward_s: float, backward_s: float, send_s: float) -> PipelineCost:
    """Equal stages."""
    return pipeline([forward_s] * num_stages, [backward_s] * num_stages, [send_s] * (num_stages - 1))
