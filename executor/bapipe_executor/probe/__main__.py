"""One rank of a probe, started by torchrun on every host:

    torchrun --nproc-per-node 8 ... -m bapipe_executor.probe --output cluster.json

Rank 0 writes the cluster, and with `--report` every figure behind it.
"""

from __future__ import annotations

import argparse
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bapipe.formats import to_json
from bapipe_executor.probe.findings import Findings
from bapipe_executor.probe.measurement import Prober, Times
from bapipe_executor.probe.workers import this_worker

SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20)


def main() -> None:
    """Measures with all other ranks."""
    options = _options()
    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    backend = "nccl" if options.device == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=options.timeout))
    try:
        findings = _measured(Prober(device, options.sizes, options.repeats), device, options.device_kind)
        if dist.get_rank() == 0:
            _written(options.output, to_json(findings.cluster(contended=options.contended)))
            if options.report is not None:
                _written(options.report, json.dumps(findings.report(), indent=2) + "\n")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bapipe_executor.probe", description="Measure the links between ranks.")
    parser.add_argument("--output", type=Path, required=True, help="the cluster file that rank 0 writes")
    parser.add_argument("--report", type=Path, help="a file for every figure")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--device-kind", help="what the devices are called in the cluster")
    parser.add_argument("--sizes", type=_sizes, default=SIZES, help="bytes of the transfers, as 4096,65536")
    parser.add_argument("--repeats", type=int, default=20, help="transfers of a size, of which the least counts")
    parser.add_argument("--contended", action="store_true", help="write links as they are while all pairs talk")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that a rank waits for another")
    return parser.parse_args()


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _measured(prober: Prober, device: torch.device, kind: str | None) -> Findings:
    workers = _from_all(this_worker(device, kind))
    return Findings(
        workers=workers,
        alone=_merged(prober.alone()),
        together=_merged(prober.together()),
        pair_reductions=_merged(prober.pair_reductions()),
        reductions=prober.reductions(),
    )


def _merged(times: Times) -> Times:
    return {pair: points for part in _from_all(times) for pair, points in part.items()}


def _from_all(value: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _written(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


if __name__ == "__main__":
    main()
