"""What an emulation says."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bapipe.faults import Document, Duration, Name
from bapipe.plan import Fraction
from bapipe.problem import SchemaVersion

Amount = Annotated[float, Field(ge=0)]
Number = Annotated[int, Field(strict=True, ge=0)]


class EnergyReport(Document):
    """Joules of a step, by cause."""

    total_j: Amount
    macs_j: Amount
    elementwise_j: Amount
    on_chip_j: Amount
    off_chip_j: Amount
    links_j: Amount
    static_j: Amount


class BoardReport(Document):
    """One board over a step.

    `busy_s` computes or moves what is computed with; `stalled_s` holds an engine that waits in the middle of an
    operation for a chunk, for room in a FIFO or for the memory port; `utilisation` is the busy share of the step.
    `resident` names what stays on the chip, as `layer:item`. Peaks and capacities in bytes; the peak off chip includes
    the home of what stays on the chip.
    """

    device: Name
    busy_s: Duration
    stalled_s: Duration
    utilisation: Fraction
    on_chip_peak_bytes: Amount
    on_chip_capacity_bytes: Amount
    off_chip_peak_bytes: Amount
    off_chip_capacity_bytes: Amount | None
    off_chip_traffic_bytes: Amount
    resident: tuple[str, ...]
    energy: EnergyReport


class LinkReport(Document):
    """One direction of a link over a step; all-reduce included in bytes and seconds.

    `resent_bytes` were lost on the way and sent again. `fifo_depth` and `fifo_peak` count chunks; None: no limit.
    """

    source: Name
    target: Name
    busy_s: Duration
    sent_bytes: Amount
    received_bytes: Amount
    resent_bytes: Amount
    fifo_depth: Number | None
    fifo_peak: Number


class Loss(Document):
    """What is lost when boards die: the step, and what of it was done by then.

    `forwards` and `backwards` of all of those of the step were executed, `microbatches` of all through every stage;
    `boards` are those that died, and with them the layers of `stages`.
    """

    boards: tuple[Name, ...]
    stages: tuple[Number, ...]
    lost_s: Duration
    forwards: tuple[Number, Number]
    backwards: tuple[Number, Number]
    microbatches: tuple[Number, Number]


class EmulationReport(Document):
    """A step of a plan on its boards. `step_time_s` None: it never ends, and `loss` says what is lost."""

    schema_version: SchemaVersion = 1
    step_time_s: Duration | None
    samples_per_s: Amount
    predicted_step_time_s: Duration | None
    energy: EnergyReport
    boards: tuple[BoardReport, ...]
    links: tuple[LinkReport, ...]
    loss: Loss | None = None
    warnings: tuple[str, ...] = ()
