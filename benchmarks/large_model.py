"""A network that fits nowhere, profiled and planned: `python -m benchmarks.large_model`.

Llama 3 with 70 billion parameters on sequences of 2,048 tokens, computed for the H100, and planned for 64 of them. Ends
with 1 where the profile takes more than 60 s or 2 GB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLUSTER = "8x(8xH100:nvlink4):400Gb"
LIMIT_S, LIMIT_BYTES = 60.0, 2e9
PLANNING_S = 60


def main() -> int:
    """Prints both reports, the time and the memory."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "llama.json")
        llama = "bapipe_executor.models.llama"
        started = time.perf_counter()
        _bapipe("profile", f"{llama}:full", "--data", f"{llama}:short_data", "--analytic", "H100", "-o", str(profile))
        seconds = time.perf_counter() - started
        most_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"\nprofiled in {seconds:.1f} s (limit {LIMIT_S:.0f} s) and {most_bytes / 1e6:.0f} MB (limit 2,000 MB)\n")
        _bapipe("plan", str(profile), CLUSTER, "--batch", "128", "--dtype", "bf16", "--time-limit", str(PLANNING_S))
    return 0 if seconds < LIMIT_S and most_bytes < LIMIT_BYTES else 1


def _bapipe(*arguments: str) -> None:
    """Runs the command; code 5 is a plan that is not proven to be the best."""
    code = subprocess.run([sys.executable, "-m", "bapipe_cli", *arguments], check=False).returncode
    if code not in (0, 5):
        raise SystemExit(code)


if __name__ == "__main__":
    sys.exit(main())
