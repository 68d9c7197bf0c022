"""Published profiles: every published bottleneck optimum by each model, slowest first, and step times under a limit."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from bapipe.formats import load_profile
from bapipe.planner import plan
from bapipe.presets import cluster_from_spec
from bapipe.problem import ModelProfile, PlanRequest, Solver
from benchmarks.measurement import Measurement

DATA = Path(os.environ.get("BAPIPE_PUBLISHED", "published"))
"""A folder with PipeDream's profiles in data/pipedream and their optima in cases/reference-optima.json."""
OPTIMA = DATA / "cases" / "reference-optima.json"
BATCH = {"vgg16": 128, "resnet50": 128, "gnmt_large": 128, "gnmt": 32, "alexnet": 128, "densenet121": 128}
"""Samples of the mini-batch that each profile was measured with."""

LIMIT_S: dict[Solver, float] = {"cp-sat": 5.0, "milp": 60.0}
LARGE_LIMIT_S: dict[Solver, float] = {"cp-sat": 20.0, "milp": 60.0}
LARGE = ("densenet121", "gnmt_large")

STEP_TIME_MODELS = ("vgg16", "resnet50", "gnmt")
STEP_TIME_COUNTS = (8, 16, 32)
STEP_TIME_LINKS = ("", ":10GB/s")
STEP_TIME_LIMITS = {4: (10.0, 18), 8: (60.0, 14)}
"""Seconds a request, and how many of its requests are to be proven, by number of devices."""


def measurements() -> Iterator[Measurement]:
    """Nothing where the published profiles are not on this machine."""
    if not OPTIMA.exists():
        print(f"no published profiles in {DATA}: set BAPIPE_PUBLISHED to their folder to measure on them")
        return
    for solver in LIMIT_S:
        yield from sorted(_rows(solver), key=lambda measured: -measured.seconds)
    for devices in STEP_TIME_LIMITS:
        yield from _step_times(devices)


def _rows(solver: Solver) -> Iterator[Measurement]:
    groups = json.loads(OPTIMA.read_text())["groups"]
    rows = next(group["rows"] for group in groups if group["name"] == "pipedream-chain-and-dag")
    for row in rows:
        name = Path(row["file"]).name.split(".")[0]
        limit_s = (LARGE_LIMIT_S if name in LARGE else LIMIT_S)[solver]
        request = _bottleneck_request(row, name, solver, limit_s)
        started = time.perf_counter()
        found = plan(request)
        seconds = time.perf_counter() - started
        reached_ms = found.prediction.bottleneck_s * 1e3 if found.prediction else float("inf")
        right = found.status == "optimal" and abs(reached_ms / row["optimum_ms"] - 1) <= 1e-6
        title = f"{solver}: {name}, {row['devices']} devices, {row['cuts']}, {row['mode']} x {row['comm_factor']}"
        fault = "" if right else f"{found.status}, {reached_ms:.6g} ms where {row['optimum_ms']:.6g} is the least"
        yield Measurement(title, seconds, limit_s, fault=fault)


def _bottleneck_request(row: Any, name: str, solver: Solver, limit_s: float) -> PlanRequest:
    """Training crosses a cut twice, so one crossing is what twice the bandwidth gives."""
    bandwidth = row["bandwidth_bytes_per_s"] * 2 / (row["comm_factor"] or 2)
    return PlanRequest(
        profile=_profile(name),
        cluster=cluster_from_spec(f"{row['devices']}xreference:{bandwidth!r}B/s"),
        batch_size=BATCH[name],
        objective="bottleneck",
        communication=row["mode"],
        cuts="any" if row["cuts"] == "dag" else "topological-order",
        solver=solver,
        time_limit_s=limit_s,
    )


def _step_times(devices: int) -> Iterator[Measurement]:
    limit_s, wanted = STEP_TIME_LIMITS[devices]
    proven, total_s = 0, 0.0
    for name, count, link in product(STEP_TIME_MODELS, STEP_TIME_COUNTS, STEP_TIME_LINKS):
        request = PlanRequest(
            profile=_profile(name),
            cluster=cluster_from_spec(f"{devices}xreference{link}"),
            batch_size=BATCH[name],
            cuts="topological-order",
            schedules=("1f1b", "1f1b-so"),
            microbatch_counts=(count,),
            time_limit_s=limit_s,
        )
        started = time.perf_counter()
        found = plan(request)
        seconds = time.perf_counter() - started
        proven, total_s = proven + (found.status == "optimal"), total_s + seconds
        gap = "no bound" if found.proof.gap is None else f"gap {found.proof.gap:.2%}"
        yield Measurement(f"step time: {name}, {devices} devices, M {count}, {link[1:] or 'free'}", seconds, note=gap)
    fault = "" if proven >= wanted else f"{wanted} are wanted"
    yield Measurement(f"step time, {devices} devices: {proven} of 18 proven in {limit_s:g} s", total_s, fault=fault)


@cache
def _profile(name: str) -> ModelProfile:
    return load_profile(DATA / "data" / "pipedream" / f"{name}.graph.txt", profile_batch=BATCH[name])
