"""Runs every benchmark and prints a table; exit status 1 when a limit is exceeded."""

from __future__ import annotations

import sys
from itertools import chain

from benchmarks import simulation

BENCHMARKS = (simulation.measurements,)


def main() -> int:
    """Prints each measurement as it is made."""
    passed = True
    for measurement in chain.from_iterable(run() for run in BENCHMARKS):
        limit = "" if measurement.limit_s is None else f"limit {measurement.limit_s:.3f} s"
        verdict = "" if measurement.passed else "EXCEEDED"
        print(f"{measurement.name:<50} {measurement.seconds:8.4f} s  {limit} {verdict}".rstrip(), flush=True)
        passed = passed and measurement.passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
