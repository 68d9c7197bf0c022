"""A run whose ranks are killed, one after the other, against the same run undisturbed.

`make bench-executor` runs it: in each of ten runs a random rank is killed (SIGKILL) at a random step. Exit status 1
unless every run ends with the very same checkpoint: parameters, optimizer, random numbers, to the last bit.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from bapipe_executor.supervisor import supervise
from harness.checkpoints import contents, noisy_plan, spec_of, unlike
from harness.disasters import Disaster

RUNS, STEPS, RANKS = 10, 12, 2


def main() -> int:
    """Runs them all."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    chance = random.Random(5)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="bapipe-recovery-") as folder:
        whole = _end_of(Path(folder, "whole"), Disaster({}))
        for number in range(RUNS):
            step, rank = chance.randint(1, STEPS - 1), chance.randrange(RANKS)
            disaster = Disaster({step: (rank, signal.SIGKILL)})
            started_s = time.perf_counter()
            end = _end_of(Path(folder, str(number)), disaster)
            other = unlike(contents(whole), contents(end))
            wrong += bool(other) or len(disaster.restarts) != 1
            went_on = ", ".join(f"went on from step {event['step']}" for event in disaster.restarts)
            result = f"{len(other)} entries differ" if other else "equal to the last bit"
            print(f"rank {rank} killed at step {step}: {went_on}; {result}; {time.perf_counter() - started_s:.0f} s")
    print(f"{RUNS} runs, {wrong} of them wrong")
    return 1 if wrong else 0


def _end_of(folder: Path, disaster: Disaster) -> Path:
    """The last checkpoint of a run."""
    supervise(noisy_plan(), spec_of(folder, STEPS, checkpoint_every=2), disaster.note, max_restarts=3)
    return folder / f"step-{STEPS:08}"


if __name__ == "__main__":
    sys.exit(main())
