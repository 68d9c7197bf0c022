"""Plans rehearsed with emulated compute on four ranks: step times measured beside predicted, and their ranking.

`make bench-rehearsal` runs it. Operations take 40 ms or more. Exit status 1 unless every step is within 10% of its
prediction, and plans whose predictions lie 10% or more apart come out in the order of their predictions.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import pairwise, product
from pathlib import Path
from statistics import median

from bapipe.catalogue import ENTRIES, Setting
from bapipe.errors import InvalidInputError
from bapipe.plan import Plan
from harness.pool import Pool
from harness.rehearsals import step_times

RANKS, STEPS = 4, 3
FORWARD_S, BACKWARD_S = 0.08, 0.16
NAMED = ("gpipe", "1f1b-sno", "1f1b-so", "interleaved", "zb-v")
TOLERANCE, APART = 0.10, 1.10
SETTINGS = tuple(product((4, 6, 8, 12, 16), (0.01, 0.04)))
"""Micro-batches and seconds of a transfer of the plans that are ranked."""


def main() -> int:
    """Rehearses the named schedules, then the plans that are ranked."""
    pool = Pool()
    print("schedule       micro-batches  transfer   predicted    measured    error")
    named = [_rehearsed(pool, _plan(name, 8, 0.04), f"{name:<14} 8 {40:>18} ms") for name in NAMED]
    wrong = sum(abs(measured / predicted - 1) > TOLERANCE for predicted, measured in named)
    print("\nplans whose predictions lie 10% or more apart")
    ranked = [_rehearsed(pool, plan, name) for name, plan in _apart()]
    pool.close()
    in_order = all(first[1] < second[1] for first, second in pairwise(ranked))
    order = "in the order of their predictions" if in_order else "in ANOTHER order than their predictions"
    print(f"{wrong} of {len(named)} steps off by more than 10%; {len(ranked)} plans {order}")
    return 1 if wrong or not in_order else 0


def _plan(name: str, microbatches: int, transfer_s: float) -> Plan:
    setting = Setting(RANKS, microbatches, FORWARD_S, BACKWARD_S, transfer_s)
    return next(entry for entry in ENTRIES if entry.name == name).make(setting)


def _apart() -> list[tuple[str, Plan]]:
    """Plans of several schedules, micro-batches and transfers, each predicted to take 10% longer than the last."""
    plans = []
    for name, (microbatches, transfer_s) in product(NAMED, SETTINGS):
        try:
            plan = _plan(name, microbatches, transfer_s)
        except (InvalidInputError, ValueError):
            continue  # a schedule may need more micro-batches
        label = f"{name:<14} {microbatches} {transfer_s * 1e3:>18.0f} ms"
        plans.append((_predicted_s(plan), label, plan))
    chosen: list[tuple[str, Plan]] = []
    least_s = 0.0
    for predicted_s, label, plan in sorted(plans, key=lambda each: each[0]):
        if predicted_s >= least_s:
            chosen.append((label, plan))
            least_s = predicted_s * APART
    return chosen


def _rehearsed(pool: Pool, plan: Plan, label: str) -> tuple[float, float]:
    """Predicted and measured seconds of a step."""
    with tempfile.TemporaryDirectory(prefix="bapipe-rehearsal-") as folder:
        seconds = pool.run(step_times, RANKS, plan, STEPS, Path(folder, "board"))
    measured_s, predicted_s = median(seconds[0]), _predicted_s(plan)
    print(f"{label} {predicted_s:>10.3f} s {measured_s:>9.3f} s {measured_s / predicted_s - 1:>+8.1%}", flush=True)
    return predicted_s, measured_s


def _predicted_s(plan: Plan) -> float:
    assert plan.prediction is not None
    return plan.prediction.step_time_s


if __name__ == "__main__":
    sys.exit(main())
