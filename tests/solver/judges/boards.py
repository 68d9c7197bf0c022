"""Small boards and layers for the tests of an FPGA's costs."""

from __future__ import annotations

from typing import Any

from bapipe.problem import Cluster, Device, DeviceKind, Fpga, Layer, ModelProfile, PlanRequest


def fpga(**figures: Any) -> Fpga:
    """64 slices of one MAC as arrays of 4 × 4, 1 kHz, blocks of 10 bytes without buffers, 1,000 bytes a second."""
    known: dict[str, Any] = {
        "dsp_slices": 64,
        "clock_hz": 1000.0,
        "on_chip_bytes": 400,
        "off_chip_bytes": 10**9,
        "off_chip_bandwidth_bytes_per_s": 1000.0,
        "macs_per_dsp": {"fp32": 1.0},
        "input_lanes": 4,
        "output_lanes": 4,
        "elementwise_lanes": 16,
        "memory_block_bytes": 10,
        "buffer_bytes": 0,
    }
    return Fpga(**known | figures)


def request(layers: list[Layer], board: Fpga, devices: int = 1, **options: Any) -> PlanRequest:
    """A chain of layers on boards of one kind, mini-batches of 8."""
    kind = DeviceKind(name="board", memory_bytes=board.off_chip_bytes, fpga=board, execution="async")
    placed = tuple(Device(id=f"d{k}", kind="board") for k in range(devices))
    profile = ModelProfile(name="chain", layers=tuple(layers))
    known: dict[str, Any] = {"cluster": Cluster(kinds=(kind,), devices=placed), "batch_size": 8}
    return PlanRequest(profile=profile, **known | options)


def linear(name: str, inputs: int, outputs: int, **fields: Any) -> Layer:
    """A linear layer of 4 bytes an element that keeps its output."""
    known: dict[str, Any] = {
        "id": name,
        "kind": "Linear",
        "operators": ({"kind": "linear", "in_features": inputs, "out_features": outputs},),
        "parameter_bytes": 4 * inputs * outputs,
        "output_bytes_per_sample": 4.0 * outputs,
    }
    return Layer.model_validate(known | fields)


def relu(name: str, elements: int, **fields: Any) -> Layer:
    """An element-wise layer of 4 bytes an element."""
    known: dict[str, Any] = {
        "id": name,
        "kind": "ReLU",
        "operators": ({"kind": "elementwise", "elements": elements},),
        "output_bytes_per_sample": 4.0 * elements,
        "streamable": True,
    }
    return Layer.model_validate(known | fields)


def convolution(name: str, inputs: int, outputs: int, pixels: int, positions: int = 9, **fields: Any) -> Layer:
    """A convolution of 4 bytes an element that keeps its output."""
    operator = {
        "kind": "convolution",
        "in_channels": inputs,
        "out_channels": outputs,
        "kernel_positions": positions,
        "out_pixels": pixels,
    }
    known: dict[str, Any] = {
        "id": name,
        "kind": "Conv2d",
        "operators": (operator,),
        "parameter_bytes": 4 * inputs * outputs * positions,
        "output_bytes_per_sample": 4.0 * outputs * pixels,
        "streamable": True,
    }
    return Layer.model_validate(known | fields)
