"""Requests for the OpenAPI document: small, whole, and answered in the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bapipe.check import stage_figures
from bapipe.faults import parse
from bapipe.plan import NOT_PREDICTED, Plan, Schedule, Stage, unproven
from bapipe.problem import PlanRequest
from bapipe.schedules import orders
from bapipe.simulator import simulate


def _layer(name: str, forward_s: float, backward_s: float, parameter_bytes: int, output_bytes: float) -> dict[str, Any]:
    time = {"device_kind": "reference", "microbatch_size": 1, "forward_s": forward_s, "backward_s": backward_s}
    return {
        "id": name,
        "times": [time],
        "parameter_bytes": parameter_bytes,
        "output_bytes_per_sample": output_bytes,
    }


TWO_DEVICES: dict[str, Any] = {
    "kinds": [{"name": "reference", "memory_bytes": 4_000_000_000}],
    "devices": [{"id": "device0", "kind": "reference"}, {"id": "device1", "kind": "reference"}],
    "links": {"within_host": {"bandwidth_bytes_per_s": 1e9, "latency_s": 1e-5}},
}

FOUR_LAYERS: dict[str, Any] = {
    "name": "four-layers",
    "layers": [
        _layer("embedding", 0.001, 0.002, 80_000_000, 400_000.0),
        _layer("encoder", 0.004, 0.008, 20_000_000, 400_000.0),
        _layer("decoder", 0.004, 0.008, 20_000_000, 400_000.0),
        _layer("head", 0.003, 0.006, 80_000_000, 4_000.0),
    ],
}

PLAN_REQUEST_EXAMPLES: dict[str, Any] = {
    "two-devices": {
        "summary": "Four layers on two devices",
        "value": {"profile": FOUR_LAYERS, "cluster": TWO_DEVICES, "batch_size": 8, "time_limit_s": 10.0},
    },
    "bottleneck": {
        "summary": "The lowest bottleneck of a saturated pipeline",
        "value": {
            "profile": FOUR_LAYERS,
            "cluster": TWO_DEVICES,
            "batch_size": 8,
            "objective": "bottleneck",
            "communication": "serial",
        },
    },
}

TWO_BOARDS: dict[str, Any] = {
    "kinds": [
        {
            "name": "board",
            "memory_bytes": 4_000_000_000,
            "execution": "async",
            "fpga": {
                "dsp_slices": 6840,
                "clock_hz": 3e8,
                "on_chip_bytes": 45_000_000,
                "off_chip_bytes": 4_000_000_000,
                "off_chip_bandwidth_bytes_per_s": 3.84e10,
                "fifo_bytes": 1_000_000,
            },
        }
    ],
    "devices": [{"id": "board0", "kind": "board"}, {"id": "board1", "kind": "board"}],
    "links": {"within_host": {"bandwidth_bytes_per_s": 1.25e10, "latency_s": 1e-6, "mode": "streaming", "chunks": 4}},
}


def _linear(name: str, inputs: int, outputs: int) -> dict[str, Any]:
    return {
        "id": name,
        "operators": [{"kind": "linear", "in_features": inputs, "out_features": outputs}],
        "parameter_bytes": 4 * inputs * outputs,
        "output_bytes_per_sample": 4.0 * outputs,
    }


TWO_LINEAR_LAYERS: dict[str, Any] = {
    "name": "two-linear-layers",
    "layers": [_linear("hidden", 1024, 2048), _linear("head", 2048, 512)],
}


def _by_hand(request: dict[str, Any], stages: Sequence[Sequence[str]], num_microbatches: int) -> dict[str, Any]:
    """A 1F1B plan of these stages, a device each, with the simulator's figures."""
    asked = parse(PlanRequest, request)
    devices = [device.id for device in asked.cluster.devices]
    nothing = {"forward_s": 0.0, "backward_s": 0.0, "load_s": 0.0, "peak_memory_bytes": 0.0, "memory_limit_bytes": None}
    plan = Plan(
        status="feasible",
        request=asked,
        stages=tuple(
            Stage.model_validate({"index": s, "layers": layers, "devices": [devices[s]], **nothing})
            for s, layers in enumerate(stages)
        ),
        schedule=Schedule(
            name="1f1b",
            num_microbatches=num_microbatches,
            microbatch_size=asked.batch_size // num_microbatches,
            orders=orders("1f1b", len(stages), num_microbatches),
        ),
        prediction=NOT_PREDICTED,
        proof=unproven("made by hand"),
    )
    simulation = simulate(plan)
    figures = stage_figures(plan, simulation)
    filled = tuple(stage.model_copy(update=found) for stage, found in zip(plan.stages, figures, strict=True))
    told = plan.model_copy(update={"stages": filled, "prediction": simulation.prediction(asked)})
    document: dict[str, Any] = told.model_dump(mode="json", exclude_defaults=True)
    return document


SIMULATION_EXAMPLES: dict[str, Any] = {
    "made-by-hand": {
        "summary": "Four layers in two stages",
        "value": _by_hand(
            {"profile": FOUR_LAYERS, "cluster": TWO_DEVICES, "batch_size": 8},
            [["embedding", "encoder"], ["decoder", "head"]],
            num_microbatches=4,
        ),
    }
}

EMULATION_EXAMPLES: dict[str, Any] = {
    "slow-board": {
        "summary": "Two boards, of which one is slow",
        "value": {
            "plan": _by_hand(
                {"profile": TWO_LINEAR_LAYERS, "cluster": TWO_BOARDS, "batch_size": 8},
                [["hidden"], ["head"]],
                num_microbatches=4,
            ),
            "options": {"slow_boards": [{"device": "board1", "speed": 0.5}]},
        },
    }
}
