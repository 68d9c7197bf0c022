"""FPGA boards that come with BaPipe, with the source of every figure; what no source says is called an assumption.

An FPGA's memory limit is that of the memory beside the chip, where weights and stashes live; what is on the chip only
passes them on, and stands in `fpga`. Where there is HBM it is the memory beside the chip, and the DDR4 of the board is
left out. The peak is that of the DSP slices, at the clock that they are rated for.
"""

from __future__ import annotations

from dataclasses import dataclass

from bapipe.problem import DeviceKind, Fpga, FpgaEnergy

# -2 at 0.85 V: all boards carry a part of speed grade 2L, which runs at that voltage.
_DSP_CLOCK_HZ = 775e6
_INT8_OPERATIONS_PER_SLICE = 2 * 1.75
_BLOCK_RAM_BYTES = 36 * 1024 // 8
_ULTRA_RAM_BYTES = 288 * 1024 // 8
_DDR4_2400_BYTES_PER_S = 2.4e9 * 64 / 8
_HBM2_BYTES_PER_S = 32 * 14.375e9

_HOROWITZ = (
    "M. Horowitz, Computing's Energy Problem, ISSCC 2014, figure 1.1.9, at 45 nm; that it is as much on an FPGA of 16 "
    "nm is an assumption"
)
_DDR4_ENERGY = "assumption: 20 pJ a bit of DDR4"
_HBM_ENERGY = (
    "assumption: 5 pJ a bit, a quarter of DDR4's; AMD, Virtex UltraScale+ HBM: power per bit four times lower than "
    "that of memory outside the package"
)

DESIGN_SOURCES = {
    "reserved_bytes": "none: no framework runs on it",
    "peak_flops": (
        "DSP slices x clock x 2 x 1.75 INT8 multiply-accumulates; 1.75: WP486, Deep Learning with INT8 Optimization on "
        "Xilinx Devices. Wider types: none, since how many slices one takes is up to the design"
    ),
    "launch_overhead_s": "none: an operation is started by the design, not by a host",
    "execution": "sync: an operation starts on whole tensors; say async for a design that streams them",
    "fpga.clock_hz": (
        "DS923, Virtex UltraScale+ FPGA Data Sheet: DC and AC Switching Characteristics, DSP48 slice, FMAX with all "
        "registers used, speed grade -2 at 0.85 V; a design's own clock is lower"
    ),
    "fpga.macs_per_dsp": (
        "fp32: 5 slices a multiply-add, C. Zhang et al., FPGA 2015; fp16 and bf16: assumption, significands fit the 27 "
        "x 18 multiplier (UG579) and sums are aligned in logic; int8: WP486"
    ),
    "fpga.input_lanes": "assumption: arrays of 16 x 32 multiply-adds",
    "fpga.output_lanes": "assumption: arrays of 16 x 32 multiply-adds",
    "fpga.elementwise_lanes": "assumption: units in logic beside the arrays",
    "fpga.efficiency": "assumption: arrays work in every cycle in which lanes are filled",
    "fpga.memory_block_bytes": "DS890: an UltraRAM of 288 Kib; eight block RAMs are as much",
    "fpga.buffer_bytes": "assumption: an eighth of the memory on the chip",
    "fpga.off_chip_efficiency": "assumption: bursts reach the nominal bandwidth",
    "fpga.fifo_bytes": "none: without limit, until a design says it",
    "fpga.energy.mac_j": _HOROWITZ,
    "fpga.energy.elementwise_j": _HOROWITZ,
    "fpga.energy.on_chip_j_per_byte": f"{_HOROWITZ}; a bank of 32 KiB",
    "fpga.energy.link_j_per_byte": "assumption: 10 pJ a bit, the transceivers at both ends",
    "fpga.energy.static_w": "assumption: not counted",
}
"""Of what is alike on all boards."""


@dataclass(frozen=True)
class _Chip:
    """A Virtex UltraScale+ device, and the document that counts its slices and memories."""

    name: str
    dsp_slices: int
    block_rams: int
    ultra_rams: int
    source: str


@dataclass(frozen=True)
class _Memory:
    """Beside the chip: bytes and bytes a second, each with its source, and joules a byte."""

    size_bytes: int
    bytes_per_s: float
    size_source: str
    rate_source: str
    j_per_byte: float = FpgaEnergy().off_chip_j_per_byte
    energy_source: str = _DDR4_ENERGY


_OVERVIEW = "DS890, UltraScale Architecture and Product Data Sheet: Overview, column {}"

_VU9P = _Chip("XCVU9P", 6_840, 2_160, 960, _OVERVIEW.format("VU9P"))
_VU29P = _Chip(
    *("XCVU29P", 12_288, 2_688, 1_280),
    _OVERVIEW.format("VU29P")
    + "; those of the VU13P, whose size it has: a synthesis report for xcvu29p-fsga2577-2L-e calls 13,145 look-up "
    "tables 0.76 % of it, which makes 1.73 million, and the VU13P has 1,728,000",
)
_COUNTED = "{}; counts held against public resource tables of {}, since the sheet was not at hand"
_VU37P = _Chip("XCVU37P", 9_024, 2_016, 960, _COUNTED.format(_OVERVIEW.format("VU37P"), "the XCU280, the same chip"))
_U250 = _Chip(
    *("XCU250", 12_288, 2_688, 1_280),
    _COUNTED.format("DS962, Alveo U200 and U250 Data Center Accelerator Cards Data Sheet, U250", "the part"),
)
_U280 = _Chip(
    *("XCU280", 9_024, 2_016, 960),
    _COUNTED.format("DS963, Alveo U280 Data Center Accelerator Card Data Sheet", "the part"),
)


def _ddr4(board: str, size_bytes: int, channels: int, what: str) -> _Memory:
    source = f"Xilinx/XilinxBoardStore, boards/Xilinx/{board} (preset.xml): {what}"
    rate = f"{source}; nominal: {channels} x 64 data bits at 2,400 MT/s"
    return _Memory(size_bytes, channels * _DDR4_2400_BYTES_PER_S, source, rate)


def _hbm2(left_out: str) -> _Memory:
    return _Memory(
        *(8 * 2**30, _HBM2_BYTES_PER_S),
        "UG949, Designing with HBM Devices: two stacks of 4 GB in the package, 32 pseudo channels of 256 MB: UG1393. "
        f"Left out: {left_out}",
        "UG1393, HBM Configuration and Use: 32 pseudo channels of 14.375 GB/s at most; nominal, as if all are busy",
        j_per_byte=FpgaEnergy().off_chip_j_per_byte / 4,
        energy_source=_HBM_ENERGY,
    )


def _board(name: str, title: str, chip: _Chip, memory: _Memory, guide: str) -> DeviceKind:
    return DeviceKind(
        name=name,
        memory_bytes=memory.size_bytes,
        peak_flops={"int8": chip.dsp_slices * _INT8_OPERATIONS_PER_SLICE * _DSP_CLOCK_HZ},
        memory_bandwidth_bytes_per_s=memory.bytes_per_s,
        fpga=Fpga(
            dsp_slices=chip.dsp_slices,
            clock_hz=_DSP_CLOCK_HZ,
            on_chip_bytes=chip.block_rams * _BLOCK_RAM_BYTES + chip.ultra_rams * _ULTRA_RAM_BYTES,
            off_chip_bytes=memory.size_bytes,
            off_chip_bandwidth_bytes_per_s=memory.bytes_per_s,
            energy=FpgaEnergy(off_chip_j_per_byte=memory.j_per_byte),
        ),
        sources={"name": f"AMD Xilinx {title}, FPGA {chip.name}, speed grade 2L; {guide}"}
        | DESIGN_SOURCES
        | {
            "memory_bytes": memory.size_source,
            "memory_bandwidth_bytes_per_s": memory.rate_source,
            "fpga.dsp_slices": chip.source,
            "fpga.on_chip_bytes": (
                f"{chip.source}: {chip.block_rams:,} block RAMs of 36 Kib, {chip.ultra_rams:,} UltraRAMs of 288 Kib"
            ),
            "fpga.off_chip_bytes": memory.size_source,
            "fpga.off_chip_bandwidth_bytes_per_s": memory.rate_source,
            "fpga.energy.off_chip_j_per_byte": memory.energy_source,
        },
    )


VCU118 = _board(
    "VCU118",
    "VCU118 evaluation board",
    _VU9P,
    _ddr4(
        *("vcu118/2.4", 2 * 2 * 2**30, 2),
        "two DDR4 interfaces, each four MT40A256M16GE-083E (4 Gib x 16) on 64 data bits, 2 GiB, period 833 ps",
    ),
    "UG1224, VCU118 Evaluation Board User Guide",
)
VCU128 = _board(
    "VCU128",
    "VCU128 evaluation board",
    _VU37P,
    _hbm2("one DDR4 interface of 64 data bits"),
    "UG1302, VCU128 Evaluation Board User Guide",
)
VCU129 = _board(
    "VCU129",
    "VCU129 evaluation board",
    _VU29P,
    _ddr4(
        *("vcu129/production/1.0", 16 * 2**30, 1),
        "one DDR4 RDIMM, MTA18ASF2G72PZ-2G9, 16 GiB on 64 data bits and 8 of ECC, period 833 ps",
    ),
    "UG1318, VCU129 Evaluation Board User Guide",
)
ALVEO_U250 = _board(
    "U250",
    "Alveo U250 accelerator card",
    _U250,
    _ddr4(
        *("au250/1.3", 4 * 16 * 2**30, 4),
        "four DDR4 RDIMMs, each MTA18ASF2G72PZ-2G3, 16 GiB on 64 data bits and 8 of ECC, period 833 ps",
    ),
    "UG1289, Alveo U200 and U250 Accelerator Cards User Guide",
)
ALVEO_U280 = _board(
    "U280",
    "Alveo U280 accelerator card",
    _U280,
    _hbm2("two DDR4 RDIMMs of 16 GiB, 2,400 MT/s"),
    "UG1314, Alveo U280 Data Center Accelerator Card User Guide",
)

FPGAS = (VCU118, VCU128, VCU129, ALVEO_U250, ALVEO_U280)
"""All of them."""
