"""NASNet-A large, a graph of cells with more cuts than can be enumerated: how close to a proven bound in 90 seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bapipe.examples.nasnet import nasnet_large
from bapipe.planner import plan_isolated
from bapipe.presets import cluster_from_spec
from bapipe.problem import Communication, PlanRequest
from benchmarks.measurement import Measurement

DEVICES = "8xV100-16G:pcie3"
BATCH = 16
LIMIT_S = 90.0
GAPS: dict[Communication, float] = {"none": 0.001, "serial": 0.04}
"""The largest gap that is to be left, by communication mode."""

MEMORY_BYTES = 2 * 10**9


def measurements() -> Iterator[Measurement]:
    """One plan for each mode, in a process of its own, which is ended when it holds more than `MEMORY_BYTES`."""
    profile, cluster = nasnet_large(), cluster_from_spec(DEVICES)
    for mode, most in GAPS.items():
        request = PlanRequest(
            profile=profile,
            cluster=cluster,
            batch_size=BATCH,
            objective="bottleneck",
            communication=mode,
            time_limit_s=LIMIT_S,
        )
        causes: list[str] = []
        started = time.perf_counter()
        found = plan_isolated(
            request, memory_limit_bytes=MEMORY_BYTES, on_cut_short=lambda cut, causes=causes: causes.append(cut.cause)
        )
        seconds = time.perf_counter() - started
        bound_s, gap = found.proof.lower_bound_s, found.proof.gap
        reached_s = found.prediction.bottleneck_s if found.prediction else float("inf")
        known = "no bound" if bound_s is None else f"bound {bound_s * 1e3:.4f} ms"
        note = f"{reached_s * 1e3:.4f} ms, {known}, gap {gap or 0:.3%}"
        fault = "" if gap is not None and gap <= most else f"gap of {most:.1%} is wanted"
        if "memory_limit" in causes:
            fault = f"more than {MEMORY_BYTES} bytes"
        yield Measurement(f"NASNet-A large, {DEVICES}, {mode}", seconds, note=note, fault=fault)
