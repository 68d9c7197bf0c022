"""What would make a request feasible whose side constraints the cuts alone do not show: a model is asked again and
again, with other limits, for any partition that fits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from bapipe.assembly import Assembler, Draft
from bapipe.bottleneck_search import Hearing, Witness
from bapipe.candidates import Candidate
from bapipe.cuts import CutSpace
from bapipe.formulations.base import OutOfTimeError, Stop
from bapipe.formulations.choice import formulation_for
from bapipe.formulations.problem import BottleneckProblem
from bapipe.problem import Cluster, PlanRequest
from bapipe.quantities import bytes_text

ACCURACY = 0.01
"""Relative: how near to the least memory that is enough the answer is."""


def is_constrained(request: PlanRequest) -> bool:
    """Whether a request has side constraints beyond groups, the first and the last stage."""
    same = len({(device.kind, device.speed) for device in request.cluster.devices}) == 1
    pinned = any(pin.device is not None for pin in request.profile.pins)
    direct = request.cluster.skip_tensors == "direct"
    return pinned or direct or not same or bool(request.profile.tied_parameters)


def relief(request: PlanRequest, space: CutSpace, todo: list[Candidate], stop: Stop, until_s: float) -> str:
    """Why nothing fits: the constraints contradict each other, or how much memory on every device would be enough.

    `until_s`, on the monotonic clock, is when it must have come to an end.

    Raises:
        OutOfTimeError: before it was found whether the constraints can be kept at all.
    """

    def partition(limit_bytes: int | None) -> Draft | None:
        asked = request.model_copy(update={"cluster": _limited(request.cluster, limit_bytes), "solver": "cp-sat"})
        return _any_that_fits(BottleneckProblem(asked, space, tuple(todo)), stop, until_s)

    found = partition(None)
    if found is None:
        return (
            f"{', '.join(_named(request))} and the order of layers and devices cannot all be kept, whatever the memory"
        )
    floor = 0
    try:
        while (need := math.ceil(max(found.peak_memory_bytes))) - floor > max(1, ACCURACY * need):
            middle = (floor + need) // 2
            smaller = partition(middle)
            found, floor = (found, middle) if smaller is None else (smaller, floor)
    except OutOfTimeError:
        pass
    need = math.ceil(max(found.peak_memory_bytes))
    return f"it would fit with {bytes_text(need)} on every device ({need} bytes): {found.candidate}"


def _any_that_fits(problem: BottleneckProblem, stop: Stop, until_s: float) -> Draft | None:
    """Any partition within the limits; None: there is none."""
    witness = Witness(problem.request)

    def enough() -> bool:
        return witness.best is not None or stop() or time.monotonic() > until_s

    formulation = formulation_for(problem)
    hearing = Hearing(problem, Assembler(problem.request), witness, enough, until_s, formulation)
    try:
        hearing.hear(formulation, problem)
    except OutOfTimeError:
        if witness.best is None:
            raise
    return witness.best


def _limited(cluster: Cluster, limit_bytes: int | None) -> Cluster:
    """The cluster with so many bytes on every device; None: as many as are asked for."""
    kinds = tuple(kind.model_copy(update={"memory_bytes": limit_bytes}) for kind in cluster.kinds)
    devices = tuple(device.model_copy(update={"memory_bytes": None}) for device in cluster.devices)
    return cluster.model_copy(update={"kinds": kinds, "devices": devices})


def _named(request: PlanRequest) -> Iterator[str]:
    """At most a few of the pins and groups."""
    pins, groups = request.profile.pins, request.profile.groups
    for pin in pins[:3]:
        yield f"the pin of {pin.layer!r} to {pin.device or f'the {pin.stage} stage'}"
    if len(pins) > 3:
        yield f"{len(pins) - 3} more pins"
    if groups:
        yield f"{len(groups)} groups"
