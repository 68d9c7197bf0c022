"""NASNet-A large, a graph of cells with more cuts than can be enumerated: how close to a proven bound in 90 seconds."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from bapipe.examples.nasnet import nasnet_large
from bapipe.plan import Plan
from bapipe.planner import plan
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
    """One plan for each mode."""
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
        yield _measured(request, most)


def _measured(request: PlanRequest, most: float) -> Measurement:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        found, seconds, peak_bytes = pool.submit(_planned, request).result()
    bound_s, gap = found.proof.lower_bound_s, found.proof.gap
    reached_s = found.prediction.bottleneck_s if found.prediction else float("inf")
    known = "no bound" if bound_s is None or gap is None else f"bound {bound_s * 1e3:.4f} ms, gap {gap:.3%}"
    faults = [
        *([] if gap is not None and gap <= most else [f"a gap of {most:.1%} is wanted"]),
        *([] if peak_bytes <= MEMORY_BYTES else [f"{MEMORY_BYTES / 1e9:g} GB are wanted"]),
    ]
    return Measurement(
        f"NASNet-A large, {DEVICES}, {request.communication}",
        seconds,
        note=f"{reached_s * 1e3:.4f} ms, {known}, peak {peak_bytes / 1e9:.2f} GB",
        fault=", ".join(faults),
    )


def _planned(request: PlanRequest) -> tuple[Plan, float, int]:
    """The plan, its seconds, and the most bytes that this process, which does nothing else, has held."""
    started = time.perf_counter()
    found = plan(request)
    return found, time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
