"""Clusters of FPGA boards, as a design might use them: each figure that is not the board's own is an assumption."""

from __future__ import annotations

from bapipe.presets.devices import DEVICE_KINDS
from bapipe.presets.links import QSFP28
from bapipe.problem import Cluster, Device, DeviceKind, Links

CLOCK_HZ = 300e6
FIFO_BYTES = 2**20


def design_on(board: str) -> DeviceKind:
    """A board with a design that streams, at the clock of a large design instead of that of a lone slice."""
    kind = DEVICE_KINDS[board]
    if kind.fpga is None:
        raise ValueError(f"{board!r} is no FPGA board")
    fpga = kind.fpga.model_copy(update={"clock_hz": CLOCK_HZ, "fifo_bytes": FIFO_BYTES})
    sources = kind.sources | {
        "execution": "async: the design streams tensors to its neighbours",
        "fpga.clock_hz": "assumption: 300 MHz, of a design that fills the chip",
        "fpga.fifo_bytes": "assumption: 1 MiB of distributed memory in front of each link",
    }
    return kind.model_copy(update={"execution": "async", "fpga": fpga, "sources": sources})


def board_cluster(board: str, count: int) -> Cluster:
    """So many boards in a row."""
    return Cluster(
        name=f"{count}x{board}-qsfp28",
        kinds=(design_on(board),),
        devices=tuple(Device(id=f"d{number}", kind=board) for number in range(count)),
        links=Links(within_host=QSFP28),
    )


def board_clusters() -> dict[str, Cluster]:
    """Four of each board."""
    return {cluster.name: cluster for cluster in (board_cluster("VCU118", 4), board_cluster("VCU129", 4))}
