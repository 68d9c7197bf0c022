"""Device kinds that come with BaPipe, with the source of every figure.

Peaks are of dense arithmetic: data sheets that quote sparsity are halved. `fp16` and `bf16` are tensor core peaks.
`memory_bytes` is what the driver reports, not the round number on the box.

An FPGA's memory limit is that of the memory beside the chip, where weights and stashes live; what is on the chip only
passes them on, and stands in `fpga`. Its peak is that of its DSP slices, at the clock that they are rated for.
"""

from __future__ import annotations

from dataclasses import dataclass

from bapipe.problem import DeviceKind, Fpga

REFERENCE = DeviceKind(
    name="reference",
    sources={
        "name": "the kind that imported times belong to when their file names no device",
        "memory_bytes": "none: unlimited",
        "launch_overhead_s": "none: times are taken as they are",
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

# -2 at 0.85 V: both boards carry a part of speed grade 2L, which runs at that voltage.
_DSP_CLOCK_HZ = 775e6
_INT8_OPERATIONS_PER_SLICE = 2 * 1.75
_BLOCK_RAM_BYTES = 36 * 1024 // 8
_ULTRA_RAM_BYTES = 288 * 1024 // 8
_DDR4_2400_BYTES_PER_S = 2.4e9 * 64 / 8


@dataclass(frozen=True)
class _Chip:
    """A Virtex UltraScale+ device, as its maker's overview counts it."""

    name: str
    dsp_slices: int
    block_rams: int
    ultra_rams: int
    held_against: str = ""


_VU9P = _Chip("VU9P", 6_840, 2_160, 960)
_VU29P = _Chip(
    *("VU29P", 12_288, 2_688, 1_280),
    "; those of the VU13P, whose size it has: a synthesis report for xcvu29p-fsga2577-2L-e calls 13,145 look-up tables "
    "0.76 % of it, which makes 1.73 million, and the VU13P has 1,728,000",
)


def _fpga_board(name: str, chip: _Chip, memory_bytes: int, channels: int, memory: str) -> DeviceKind:
    overview = f"DS890, UltraScale Architecture and Product Data Sheet: Overview, column {chip.name}{chip.held_against}"
    clock = (
        "DS923, Virtex UltraScale+ FPGA Data Sheet: DC and AC Switching Characteristics, DSP48 slice, FMAX with all "
        "registers used, speed grade -2 at 0.85 V; a design's own clock is lower"
    )
    bandwidth = f"{memory}; nominal: {channels} x 64 data bits at 2,400 MT/s"
    return DeviceKind(
        name=name,
        memory_bytes=memory_bytes,
        peak_flops={"int8": chip.dsp_slices * _INT8_OPERATIONS_PER_SLICE * _DSP_CLOCK_HZ},
        memory_bandwidth_bytes_per_s=channels * _DDR4_2400_BYTES_PER_S,
        fpga=Fpga(
            dsp_slices=chip.dsp_slices,
            clock_hz=_DSP_CLOCK_HZ,
            on_chip_bytes=chip.block_rams * _BLOCK_RAM_BYTES + chip.ultra_rams * _ULTRA_RAM_BYTES,
            off_chip_bytes=memory_bytes,
            off_chip_bandwidth_bytes_per_s=channels * _DDR4_2400_BYTES_PER_S,
        ),
        sources={
            "name": f"AMD Xilinx {name} evaluation board, FPGA XC{chip.name}, speed grade 2L",
            "memory_bytes": memory,
            "reserved_bytes": "none: no framework runs on it",
            "peak_flops": (
                "DSP slices x clock x 2 x 1.75 INT8 multiply-accumulates; 1.75: WP486, Deep Learning with INT8 "
                "Optimization on Xilinx Devices. Wider types: none, since how many slices one takes is up to the design"
            ),
            "memory_bandwidth_bytes_per_s": bandwidth,
            "launch_overhead_s": "none: an operation is started by the design, not by a host",
            "execution": "sync: an operation starts on whole tensors; say async for a design that streams them",
            "fpga.dsp_slices": overview,
            "fpga.clock_hz": clock,
            "fpga.on_chip_bytes": (
                f"{overview}: {chip.block_rams:,} block RAMs of 36 Kib, {chip.ultra_rams:,} UltraRAMs of 288 Kib"
            ),
            "fpga.off_chip_bytes": memory,
            "fpga.off_chip_bandwidth_bytes_per_s": bandwidth,
        },
    )


VCU118 = _fpga_board(
    "VCU118",
    _VU9P,
    2 * 2 * 2**30,
    2,
    "Xilinx/XilinxBoardStore, boards/Xilinx/vcu118/2.4 (preset.xml): two DDR4 interfaces, each four MT40A256M16GE-083E "
    "(4 Gib x 16) on 64 data bits, 2 GiB, period 833 ps; see also UG1224, VCU118 Evaluation Board User Guide",
)

VCU129 = _fpga_board(
    "VCU129",
    _VU29P,
    16 * 2**30,
    1,
    "Xilinx/XilinxBoardStore, boards/Xilinx/vcu129/production/1.0 (preset.xml): one DDR4 RDIMM, MTA18ASF2G72PZ-2G9, "
    "16 GiB on 64 data bits and 8 of ECC, period 833 ps; see also UG1318, VCU129 Evaluation Board User Guide",
)

DEVICE_KINDS = {kind.name: kind for kind in (REFERENCE, V100_16G, A100_40G, A100_80G, H100, VCU118, VCU129)}

ALIASES = {"H100-80G": "H100"}
"""Other names a kind goes by."""
