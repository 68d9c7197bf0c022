"""Runs the benchmarks, or those that are named, and prints a table; exit status 1 when something is not as wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from benchmarks import cells, emulation, published, service, simulation
from benchmarks.measurement import Measurement

BENCHMARKS: dict[str, Callable[[], Iterator[Measurement]]] = {
    "simulation": simulation.measurements,
    "emulation": emulation.measurements,
    "published": published.measurements,
    "cells": cells.measurements,
    "service": service.measurements,
}


def main(names: Sequence[str]) -> int:
    """Prints each measurement as it is made."""
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    passed = True
    for measurement in chain.from_iterable(BENCHMARKS[name]() for name in names or BENCHMARKS):
        print(_line(measurement), flush=True)
        passed = passed and measurement.passed
    return 0 if passed else 1


def _line(measurement: Measurement) -> str:
    limit = "" if measurement.limit_s is None else f"limit {measurement.limit_s:.3f} s"
    verdict = "" if measurement.passed else f"EXCEEDED {measurement.fault}"
    parts = (f"{measurement.name:<60} {measurement.seconds:8.4f} s", limit, measurement.note, verdict)
    return "  ".join(part.strip() for part in parts if part)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
