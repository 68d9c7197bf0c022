"""1F1B: a backward as soon as possible, then one forward and one backward in turn.

`1f1b` keeps at most N - s micro-batches of stage s (from 0) in flight: the fewest that fill a pipeline of N stages
whose transfers are free. `1f1b-so` (synchronous, transfers overlap; also called eager 1F1B) doubles the warm-up, so
that a transfer hides behind the computation of another micro-batch.

Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, with the flush of
"Memory-Efficient Pipeline-Parallel DNN Training", arXiv 2006.09503.
"""

from __future__ import annotations

from bapipe.schedules.base import Family


def warm_up(stage: int, num_stages: int, num_microbatches: int) -> int:
    """One forward for each later stage."""
    return min(num_microbatches, num_stages - 1 - stage)


def warm_up_overlapped(stage: int, num_stages: int, num_microbatches: int) -> int:
    """Two forwards for each later stage: one that computes there, and one on its way."""
    return min(num_microbatches, 2 * (num_stages - 1 - stage))


ONE_F_ONE_B = Family("1f1b", warm_up)
ONE_F_ONE_B_SO = Family("1f1b-so", warm_up_overlapped)
