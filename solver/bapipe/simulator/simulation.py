"""What a simulation says of a plan: when everything happens, and what devices and links are used for."""

from __future__ import annotations

from dataclasses import dataclass

from bapipe.cost.pipeline import PipelineCost, stage_loads_s
from bapipe.faults import parse
from bapipe.plan import Prediction
from bapipe.problem import PlanRequest
from bapipe.simulator.replay import Reduction

DEVICE_FIGURES = ("device", "busy_s", "span_bubble_s", "peak_memory_bytes")


@dataclass(frozen=True)
class Operations:
    """Operations as columns, device by device in the order of execution. `device` indexes `Simulation.devices`.

    Kind O is the update of a stage's weights after a backward, in a plan without a flush.
    """

    device: tuple[int, ...]
    stage: tuple[int, ...]
    kind: tuple[str, ...]
    microbatch: tuple[int, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


@dataclass(frozen=True)
class Transfers:
    """Transfers that take time, as columns. `source` and `target` index `Simulation.devices`; kind F carries an
    activation, kind B a gradient."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    kind: tuple[str, ...]
    microbatch: tuple[int, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]


@dataclass(frozen=True)
class LinkUse:
    """One direction of a link over a step: seconds that it is busy, and bytes; device ids."""

    source: str
    target: str
    busy_s: float
    size_bytes: float


@dataclass(frozen=True)
class Simulation:
    """A plan's step, replayed. Tuples with an entry a device follow `devices`, those in use, stage by stage.

    `step_time_s` is the makespan with gradient reduction and optimizer step; `period_s` the time from step to step when
    steps follow each other and each device starts the next once its own weights are updated. `busy_s` counts compute
    and optimizer, `span_bubble_s` the idle time between a device's first and last operation, and `bubble_fraction`
    the idle share of the devices in use over the step. `peak_memory_bytes` includes the reserve of the device's kind.
    `engines` is 2 for a device that executes forwards and backwards side by side. Not `flushed`: steps follow each
    other without a pause, and memory is that of many in a row.
    """

    devices: tuple[str, ...]
    cost: PipelineCost
    step_time_s: float
    period_s: float
    operations: Operations
    transfers: Transfers
    reductions: tuple[Reduction, ...]
    optimizer_start_s: tuple[float, ...]
    optimizer_end_s: tuple[float, ...]
    busy_s: tuple[float, ...]
    span_bubble_s: tuple[float, ...]
    bubble_fraction: float
    peak_memory_bytes: tuple[float, ...]
    links: tuple[LinkUse, ...]
    engines: tuple[int, ...]
    flushed: bool = True

    @property
    def pace_s(self) -> float:
        """Seconds that a mini-batch takes: the step time or, without a flush, the period."""
        return self.step_time_s if self.flushed else self.period_s

    def prediction(self, request: PlanRequest) -> Prediction:
        """The figures that a plan carries. A step that takes no time has 0 samples per second.

        Raises:
            InvalidInputError: when a figure is beyond what a plan can say.
        """
        rows = zip(self.devices, self.busy_s, self.span_bubble_s, self.peak_memory_bytes, strict=True)
        figures = {
            "step_time_s": self.step_time_s,
            "period_s": self.period_s,
            "bottleneck_s": max(stage_loads_s(self.cost, request.communication)),
            "samples_per_s": request.batch_size / self.pace_s if self.pace_s else 0.0,
            "bubble_fraction": self.bubble_fraction,
            "devices": tuple(dict(zip(DEVICE_FIGURES, row, strict=True)) for row in rows),
            "links": tuple(
                {"source": use.source, "target": use.target, "busy_s": use.busy_s, "bytes": use.size_bytes}
                for use in self.links
            ),
        }
        return parse(Prediction, figures, "/prediction")
