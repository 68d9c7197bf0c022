"""What a timeline shows: rows of spans. A row is a device, a direction of a link, or the ring of a stage's replicas."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bapipe.timeline.picture import Picture

if TYPE_CHECKING:
    from bapipe.simulator import Simulation

NONE = -1


@dataclass(frozen=True)
class Kind:
    """How a kind of span is named, and drawn in characters: a letter, then the fill."""

    name: str
    letter: str
    fill: str


KINDS = {
    "F": Kind("forward", "F", "-"),
    "B": Kind("backward", "B", "="),
    "I": Kind("input gradient", "I", "="),
    "W": Kind("weight gradient", "W", "~"),
    "R": Kind("forward again", "R", "-"),
    "A": Kind("all-reduce of gradients", "A", "+"),
    "O": Kind("optimizer step", "O", "*"),
    "XF": Kind("send activation", "x", "x"),
    "XB": Kind("send gradient", "y", "y"),
}


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds from the start of the step; `stage` and `microbatch` are `NONE` where they mean nothing."""

    kind: str
    start_s: float
    end_s: float
    stage: int = NONE
    microbatch: int = NONE


Row = tuple[str, list[Span]]


def device_spans(picture: Picture) -> list[Row]:
    """A row a device: forward, backward and optimizer step."""
    rows: list[Row] = [(device, []) for device in picture.devices]
    done = picture.operations
    columns = zip(done.device, done.kind, done.start_s, done.end_s, done.stage, done.microbatch, strict=True)
    for device, kind, start_s, end_s, stage, microbatch in columns:
        rows[device][1].append(Span(kind, start_s, end_s, stage, microbatch))
    for (_, spans), start_s, end_s in zip(rows, picture.optimizer_start_s, picture.optimizer_end_s, strict=True):
        if end_s > start_s:
            spans.append(Span("O", start_s, end_s, spans[0].stage if spans else NONE))
    return rows


def engine_spans(picture: Picture) -> list[Row]:
    """`device_spans`, with a row each for the forward and the backward engine of a device that has both."""
    rows: list[Row] = []
    for (device, spans), engines in zip(device_spans(picture), picture.engines, strict=True):
        if engines == 1:
            rows.append((device, spans))
        else:
            rows.append((f"{device} forward", [span for span in spans if span.kind == "F"]))
            rows.append((f"{device} backward", [span for span in spans if span.kind != "F"]))
    return rows


def reduction_spans(picture: Picture) -> list[Row]:
    """A row a stage whose replicas reduce gradients."""
    rows: dict[str, list[Span]] = defaultdict(list)
    for reduction in picture.reductions:
        span = Span("A", reduction.start_s, reduction.end_s, reduction.stage)
        rows[f"all-reduce {reduction.stage}"].append(span)
    return list(rows.items())


def link_spans(simulation: Simulation) -> list[Row]:
    """A row a direction of a link that carries transfers."""
    rows: dict[str, list[Span]] = defaultdict(list)
    sent = simulation.transfers
    columns = zip(sent.source, sent.target, sent.kind, sent.start_s, sent.end_s, sent.microbatch, strict=True)
    for source, target, kind, start_s, end_s, microbatch in columns:
        name = f"{simulation.devices[source]} → {simulation.devices[target]}"
        rows[name].append(Span(f"X{kind}", start_s, end_s, NONE, microbatch))
    return list(rows.items())


def stage_of_device(simulation: Simulation) -> dict[str, int]:
    """The stage that each device in use executes."""
    return {device: stage for stage, cost in enumerate(simulation.cost.stages) for device in cost.devices}
