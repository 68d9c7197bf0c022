"""1F1B-AS against FBP-AS as tensors get slower: emulated steps, and where a formula says that FBP-AS wins."""

from __future__ import annotations

from dataclasses import dataclass

from bapipe.lowering import Operation
from bapipe.plan import NOT_PREDICTED, Plan, Schedule, Stage, unproven
from bapipe.problem import (
    Cluster,
    Device,
    DeviceKind,
    Layer,
    LayerTime,
    Link,
    Links,
    ModelProfile,
    PlanRequest,
    ScheduleName,
)
from bapipe.schedules import placed_orders
from bapipe.simulator.event_simulation import prepare
from bapipe.simulator.events import Job
from bapipe.simulator.flow import Flow, replay_flow

STAGES, MICROBATCHES, CHUNKS = 4, 32, 16
FORWARD_S, BACKWARD_S = 1.0, 2.0
DEPTH = 2
TENSOR_S = (0.25, 0.5, 0.75, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 2.7, 3.0, 3.5, 4.0, 5.0, 6.0)


@dataclass(frozen=True)
class Point:
    """A tensor that takes `tensor_s` on a link: seconds of a step with FIFOs of `DEPTH` chunks, and without limit."""

    tensor_s: float
    one_f_one_b_s: float
    one_f_one_b_free_s: float
    fbp_s: float
    fbp_free_s: float

    @property
    def formula_says_fbp(self) -> bool:
        """(M + 1 + 2(N-1)/g)·max(T, x) < (M + (N-1)/g)·(max(F, x) + max(B, x)): FBP-AS takes less where each operation
        takes as long as its tensor, cut through in g chunks.
        """
        x, fill = self.tensor_s, (STAGES - 1) / CHUNKS
        whole_s = FORWARD_S + BACKWARD_S
        fbp_s = (MICROBATCHES + 1 + 2 * fill) * max(whole_s, x)
        return fbp_s < (MICROBATCHES + fill) * (max(FORWARD_S, x) + max(BACKWARD_S, x))


def points() -> list[Point]:
    """The sweep."""
    return [
        Point(
            x, step_s("1f1b", x, DEPTH), step_s("1f1b", x, None), step_s("fbp-as", x, DEPTH), step_s("fbp-as", x, None)
        )
        for x in TENSOR_S
    ]


def step_s(schedule: ScheduleName, tensor_s: float, depth: int | None) -> float:
    """Seconds of a step, its FIFOs `depth` chunks deep; None: without limit."""
    plan = _plan(schedule, tensor_s)
    assert plan.schedule is not None
    job = prepare(plan, plan.schedule).job
    ways = {price.resources[0] for price in job.prices if price.resources}
    depths = {} if depth is None else dict.fromkeys(ways, depth)
    return max(replay_flow(job, Flow(_parts(job), depths)).replayed.optimizer_end_s)


def _parts(job: Job) -> dict[Operation, int]:
    ends = {message.made_by for message in job.lowered.messages} | {message.read_by for message in job.lowered.messages}
    return dict.fromkeys(ends, CHUNKS)


def _plan(schedule: ScheduleName, tensor_s: float) -> Plan:
    """Equal stages; a split device has F / (F + B) of it for forwards, so that both engines take F + B."""
    time = LayerTime(device_kind="board", microbatch_size=1, forward_s=FORWARD_S, backward_s=BACKWARD_S)
    names = [f"d{stage}" for stage in range(STAGES)]
    request = PlanRequest(
        profile=ModelProfile(
            name="equal",
            layers=tuple(
                Layer(id=f"l{stage}", times=(time,), output_bytes_per_sample=1.0, streamable=True)
                for stage in range(STAGES)
            ),
        ),
        cluster=Cluster(
            kinds=(DeviceKind(name="board", execution="async"),),
            devices=tuple(Device(id=name, kind="board") for name in names),
            links=Links(within_host=Link(bandwidth_bytes_per_s=1 / tensor_s, mode="streaming", chunks=CHUNKS)),
        ),
        batch_size=MICROBATCHES,
    )
    share = FORWARD_S / (FORWARD_S + BACKWARD_S) if schedule == "fbp-as" else None
    stages = tuple(
        Stage(
            index=number,
            layers=(f"l{number}",),
            devices=(name,),
            forward_share=share,
            forward_s=FORWARD_S,
            backward_s=BACKWARD_S,
            load_s=FORWARD_S + BACKWARD_S,
            peak_memory_bytes=0.0,
            memory_limit_bytes=None,
        )
        for number, name in enumerate(names)
    )
    orders = placed_orders(schedule, [(name,) for name in names], names, MICROBATCHES, training=True)
    executed = Schedule(name=schedule, num_microbatches=MICROBATCHES, microbatch_size=1, orders=orders)
    return Plan(
        status="feasible",
        request=request,
        stages=stages,
        schedule=executed,
        prediction=NOT_PREDICTED,
        proof=unproven("by hand"),
    )
