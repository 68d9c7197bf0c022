"""What a rank has measured, and what all of them say beside the plan, as documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import Count, Document, Name, parse, parse_json

Number = Annotated[float, Field(allow_inf_nan=False)]
Index = Annotated[int, Field(ge=0)]


class Timed(Document):
    """An operation such as `2F0`, or `step`; seconds from a moment that all ranks of a host share."""

    name: str
    start_s: Number
    end_s: Number

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end_s - self.start_s


class StepRecord(Document):
    """A step on one rank: from its start to the weights' update, and its operations in their order."""

    step: Count
    whole: Timed
    operations: tuple[Timed, ...]


class RankRecord(Document):
    """What a rank measured: its last steps, and most bytes that autograd and receive buffers held at once."""

    rank: Index
    device: Name
    steps: tuple[StepRecord, ...]
    peak_saved_bytes: Index


class OperationReport(Document):
    """The operations of one kind of a stage: medians of a micro-batch, in seconds."""

    stage: Index
    kind: str
    measured_s: Number
    predicted_s: Number


class DeviceReport(Document):
    """A device over a step: seconds computing, and most bytes kept for backwards, receive buffers included."""

    device: Name
    measured_busy_s: Number
    predicted_busy_s: Number
    measured_saved_bytes: Number
    predicted_saved_bytes: Number


class RunReport(Document):
    """Measured, by the median of so many steps, beside predicted."""

    steps: Count
    measured_step_s: Number
    predicted_step_s: Number
    measured_bubble: Number
    predicted_bubble: Number
    operations: tuple[OperationReport, ...]
    devices: tuple[DeviceReport, ...]


def rank_file(folder: Path, rank: int) -> Path:
    """Where a rank leaves its record."""
    return folder / f"rank-{rank}.json"


def read_ranks(folder: Path, count: int) -> list[RankRecord]:
    """The records of all ranks of a run.

    Raises:
        InvalidInputError: they are not there, or broken.
    """
    missing = [rank for rank in range(count) if not rank_file(folder, rank).is_file()]
    if missing:
        detail = f"{folder} has no record of rank {missing[0]}; a run with --report leaves them there"
        raise InvalidInputError([Fault("missing", detail)])
    records = [parse(RankRecord, parse_json(rank_file(folder, rank).read_bytes())) for rank in range(count)]
    if not all(record.steps for record in records):
        raise InvalidInputError([Fault("too_short", f"{folder} has records without a step; run one or more")])
    return records
