"""By which name the device at hand is known."""

from __future__ import annotations

import re

import torch

CUDA_NAMES = {
    "Tesla V100-SXM2-16GB": "V100-16G",
    "NVIDIA A100-SXM4-40GB": "A100-40G",
    "NVIDIA A100-SXM4-80GB": "A100-80G",
    "NVIDIA H100 80GB HBM3": "H100",
}
"""The driver's names of the devices that the presets describe."""


def kind_of(device: torch.device) -> str:
    """The preset of a CUDA device that has one, else the driver's name for it without spaces; `cpu` for the CPU."""
    if device.type != "cuda":
        return device.type
    name = torch.cuda.get_device_name(device)
    return CUDA_NAMES.get(name) or re.sub(r"\s+", "-", name.strip())
