"""Device kinds that come with BaPipe, with the source of every figure.

Peaks are of dense arithmetic: data sheets that quote sparsity are halved. `fp16` and `bf16` are tensor core peaks.
`memory_bytes` is what the driver reports, not the round number on the box. FPGA boards are in `fpgas.py`.
"""

from __future__ import annotations

from bapipe.presets.fpgas import FPGAS
from bapipe.problem import DeviceKind

REFERENCE = DeviceKind(
    name="reference",
    sources={
        "name": "the kind that imported times belong to when their file names no device",
        "memory_bytes": "none: unlimited",
        "launch_overhead_s": "none: times are taken as they are",
    },
)

CPU = DeviceKind(
    name="cpu",
    sources={
        "name": "what `bapipe profile --device cpu` calls the device that it measures on",
        "memory_bytes": "none: unlimited; `bapipe probe` writes the memory of the host at hand",
        "launch_overhead_s": "none: measured times hold it",
    },
)

# Host work in the framework and the driver, so the same figure serves every GPU.
LAUNCH_OVERHEAD_S = 20e-6
LAUNCH_SOURCE = (
    "NVIDIA technical blog, 'Understanding the Visualization of Overhead and Latency in NVIDIA Nsight Systems', "
    "figure 1: about 20 µs from the launch call to the start of a PyTorch element-wise kernel on a V100-SXM"
)

# The context of a framework that loads every kernel at start; lazy loading (CUDA 11.7 on) needs about a third of it.
RESERVED_BYTES = 2**30
RESERVED_SOURCE = (
    "pytorch/pytorch issue 28394: 1,008 MB in use on a Titan V after the first small tensor (PyTorch 1.3), rounded up "
    "to 1 GiB; issue 107667 says more than 1,000 MB before CUDA 11.7 and about 300 MB since"
)

_MIB = 2**20
_V100_SHEET = "NVIDIA V100 Tensor Core GPU data sheet, specifications, column V100 SXM2"
_A100_SHEET = "NVIDIA A100 Tensor Core GPU data sheet, specifications, column A100 {} SXM, without sparsity"
_H100_SHEET = "NVIDIA H100 Tensor Core GPU data sheet, specifications, column H100 SXM"
_HOPPER_PAPER = (
    "NVIDIA H100 Tensor Core GPU Architecture white paper, peak rates of the H100 SXM5, dense, as listed in Glenn "
    "Lockwood's notes on the H100"
)

V100_16G = DeviceKind(
    name="V100-16G",
    memory_bytes=16_130 * _MIB,
    reserved_bytes=RESERVED_BYTES,
    peak_flops={"fp64": 7.8e12, "fp32": 15.7e12, "fp16": 125e12},
    memory_bandwidth_bytes_per_s=900e9,
    launch_overhead_s=LAUNCH_OVERHEAD_S,
    sources={
        "name": "Tesla V100-SXM2-16GB",
        "memory_bytes": "nvidia-smi on Tesla V100-SXM2: 16130MiB, in yangjianxin1/GPT2-chitchat issue 19",
        "reserved_bytes": RESERVED_SOURCE,
        "peak_flops": _V100_SHEET,
        "memory_bandwidth_bytes_per_s": _V100_SHEET,
        "launch_overhead_s": LAUNCH_SOURCE,
    },
)


def _a100(size: str, memory_mib: int, bandwidth: float) -> DeviceKind:
    sheet = _A100_SHEET.format(f"{size}GB")
    return DeviceKind(
        name=f"A100-{size}G",
        memory_bytes=memory_mib * _MIB,
        reserved_bytes=RESERVED_BYTES,
        peak_flops={
            "fp64": 9.7e12,
            "fp32": 19.5e12,
            "tf32": 156e12,
            "fp16": 312e12,
            "bf16": 312e12,
            "int8": 624e12,
        },
        memory_bandwidth_bytes_per_s=bandwidth,
        launch_overhead_s=LAUNCH_OVERHEAD_S,
        sources={
            "name": f"NVIDIA A100-SXM4-{size}GB",
            "memory_bytes": f"nvidia-smi: {memory_mib}MiB, in modal-labs/modal-client pull request 2797",
            "reserved_bytes": RESERVED_SOURCE,
            "peak_flops": sheet,
            "memory_bandwidth_bytes_per_s": sheet,
            "launch_overhead_s": LAUNCH_SOURCE,
        },
    )


A100_40G = _a100("40", 40_960, 1_555e9)
A100_80G = _a100("80", 81_920, 2_039e9)

H100 = DeviceKind(
    name="H100",
    memory_bytes=81_559 * _MIB,
    reserved_bytes=RESERVED_BYTES,
    peak_flops={
        "fp64": 33.5e12,
        "fp32": 66.9e12,
        "tf32": 494.7e12,
        "fp16": 989.4e12,
        "bf16": 989.4e12,
        "fp8": 1978.9e12,
        "int8": 1978.9e12,
    },
    memory_bandwidth_bytes_per_s=3_350e9,
    launch_overhead_s=LAUNCH_OVERHEAD_S,
    sources={
        "name": "NVIDIA H100 SXM5 80GB HBM3",
        "memory_bytes": "nvidia-smi: 81559MiB, in modal-labs/modal-client pull request 2797",
        "reserved_bytes": RESERVED_SOURCE,
        "peak_flops": _HOPPER_PAPER,
        "memory_bandwidth_bytes_per_s": _H100_SHEET,
        "launch_overhead_s": LAUNCH_SOURCE,
    },
)

DEVICE_KINDS = {kind.name: kind for kind in (REFERENCE, CPU, V100_16G, A100_40G, A100_80G, H100, *FPGAS)}

ALIASES = {"H100-80G": "H100"}
"""Other names a kind goes by."""
