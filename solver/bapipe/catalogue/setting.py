"""Equal stages to compare schedules on, and plans over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bapipe.check import stage_figures
from bapipe.plan import NOT_PREDICTED, Plan, Schedule, Stage, unproven
from bapipe.problem import Cluster, Device, DeviceKind, Layer, LayerTime, Link, Links, ModelProfile, PlanRequest
from bapipe.simulator import simulate

KIND = "equal"
MIB = 2**20
PARAMETER_BYTES, STASH_BYTES, ACTIVATION_BYTES = 16 * MIB, 32 * MIB, 8 * MIB
"""Of a device's part of the model: weights, what a micro-batch keeps for its backward, and what is sent."""


@dataclass(frozen=True)
class Setting:
    """N devices, M micro-batches; seconds of a micro-batch on a device's part of the model, and of one transfer.

    `chunks`: in how many a streaming link passes a tensor on.
    """

    stages: int = 4
    microbatches: int = 8
    forward_s: float = 1.0
    backward_s: float = 2.0
    transfer_s: float = 0.0
    chunks: int = 4

    @property
    def round_s(self) -> float:
        """Forward and backward of a micro-batch."""
        return self.forward_s + self.backward_s

    @property
    def name(self) -> str:
        """As a request is called."""
        return f"{self.stages} equal stages"

    def request(self, parts: int, link: dict[str, Any], execution: str = "sync") -> PlanRequest:
        """One layer for each of `parts` equal parts of a device's share of the model, the input gradient half of a
        backward; over links of these properties."""
        count = self.stages * parts
        half = self.backward_s / parts / 2
        time = LayerTime(
            device_kind=KIND,
            microbatch_size=1,
            forward_s=self.forward_s / parts,
            backward_s=2 * half,
            input_gradient_s=half,
            weight_gradient_s=half,
        )
        layers = tuple(
            Layer(
                id=f"layer{number}",
                times=(time,),
                parameter_bytes=PARAMETER_BYTES // parts,
                output_bytes_per_sample=float(ACTIVATION_BYTES),
                stash_bytes_per_sample=STASH_BYTES / parts,
                streamable=True,
            )
            for number in range(count)
        )
        rate = ACTIVATION_BYTES / self.transfer_s if self.transfer_s else None
        return PlanRequest.model_validate(
            {
                "profile": ModelProfile(name=self.name, layers=layers),
                "cluster": Cluster(
                    kinds=(DeviceKind.model_validate({"name": KIND, "execution": execution}),),
                    devices=tuple(Device(id=f"d{number}", kind=KIND) for number in range(self.stages)),
                    links=Links(within_host=Link.model_validate({"bandwidth_bytes_per_s": rate, **link})),
                ),
                "batch_size": self.microbatches,
            }
        )


def plan_of(
    request: PlanRequest, placed: Sequence[Sequence[int]], schedule: Schedule, forward_share: float | None = None
) -> Plan:
    """A plan with its figures. `placed`: of each stage, its devices; the layers are shared equally among the stages."""
    layers, devices = [layer.id for layer in request.profile.layers], request.cluster.devices
    size = len(layers) // len(placed)
    unknown: dict[str, Any] = {"forward_s": 0.0, "backward_s": 0.0, "load_s": 0.0, "peak_memory_bytes": 0.0}
    bare = Plan(
        status="feasible",
        request=request,
        stages=tuple(
            Stage(
                index=index,
                layers=tuple(layers[index * size : (index + 1) * size]),
                devices=tuple(devices[number].id for number in numbers),
                forward_share=forward_share,
                memory_limit_bytes=None,
                **unknown,
            )
            for index, numbers in enumerate(placed)
        ),
        schedule=schedule,
        prediction=NOT_PREDICTED,
        proof=unproven("given, not searched"),
    )
    simulation = simulate(bare)
    stages = [
        stage.model_copy(update=figures)
        for stage, figures in zip(bare.stages, stage_figures(bare, simulation), strict=True)
    ]
    return bare.model_copy(update={"stages": tuple(stages), "prediction": simulation.prediction(request)})
