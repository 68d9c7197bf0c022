"""Requests for the OpenAPI document: small, whole, and solved by the tests."""

from __future__ import annotations

from typing import Any


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
