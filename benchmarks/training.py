"""Every network × schedule × layout × optimizer, trained on several processes and in one: how far they are apart.

`make bench-executor` runs it. A line for each schedule and layout: the largest absolute differences of parameters and
losses after three steps in 64 bits, over all networks and both optimizers. Exit status 1 when one is too large.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict

from harness.cases import Case, all_cases
from harness.comparison import LOSS_TOLERANCE, PARAMETER_TOLERANCE, Difference, difference
from harness.pool import Pool, WorkersFailedError
from harness.training import Network, Training


def main() -> int:
    """Runs the grid, or the part of it whose names have all words of the command line in them."""
    chosen: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in all_cases():
        if all(word in str(case) for word in sys.argv[1:]):
            chosen[case.schedule, case.layout].append(case)
    pool = Pool()
    started_s = time.perf_counter()
    failed = 0
    for (schedule, layout), cases in chosen.items():
        failed += _print_row(f"{schedule} on {layout}", cases, pool)
    pool.close()
    number = sum(map(len, chosen.values()))
    print(f"{number} cases, {failed} of them wrong, {time.perf_counter() - started_s:.0f} s")
    return 1 if failed else 0


def _print_row(name: str, cases: list[Case], pool: Pool) -> int:
    """The worst of the cases by optimizer. Returns how many are wrong."""
    worst = dict.fromkeys(PARAMETER_TOLERANCE, 0.0)
    losses, wrong = 0.0, 0
    for case in cases:
        found = _difference(case, pool)
        worst[case.optimizer] = max(worst[case.optimizer], found.parameters)
        losses = max(losses, found.losses)
        if not (found.parameters <= PARAMETER_TOLERANCE[case.optimizer] and found.losses <= LOSS_TOLERANCE):
            wrong += 1
            print(f"WRONG: {case}: parameters {found.parameters:.1e}, losses {found.losses:.1e}")
    parameters = ", ".join(f"{optimizer} {error:.1e}" for optimizer, error in worst.items())
    print(f"{name:<28} {len(cases):3} cases; parameters {parameters}; losses {losses:.1e}", flush=True)
    return wrong


def _difference(case: Case, pool: Pool) -> Difference:
    try:
        return difference(pool, Network(case.network), case.plan(), Training(case.optimizer))
    except WorkersFailedError as error:
        print(f"{case}:\n{error}", file=sys.stderr)
        return Difference(float("inf"), float("inf"))


if __name__ == "__main__":
    sys.exit(main())
