"""Starts the ranks of a run on this host through torchrun, follows them, and ends them when one of them fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bapipe.errors import Fault, InvalidInputError, RunFailedError
from bapipe.formats import to_json
from bapipe.plan import Plan
from bapipe_executor import run_parts
from bapipe_executor.events import parse
from bapipe_executor.placement import placement_of
from bapipe_executor.refusals import plan_faults, refuse
from bapipe_executor.run_spec import RunSpec
from bapipe_executor.worker import PLAN_FILE, SPEC_FILE

GRACE_S = 10.0
"""How long the ranks have to leave when they are told to."""


@dataclass(frozen=True)
class Hosts:
    """This host among `count`, number `rank`; they meet at `rendezvous`, host:port of number 0. One host needs none."""

    count: int = 1
    rank: int = 0
    rendezvous: str | None = None


def check_run(plan: Plan, spec: RunSpec) -> None:
    """Raises InvalidInputError with everything that keeps the run from starting; no process is started."""
    faults = plan_faults(plan)
    if faults:
        raise InvalidInputError(faults)
    refuse(plan, run_parts.make_model(spec))
    run_parts.make_loss(spec)
    run_parts.optimizer_factory(spec)
    run_parts.scheduler_factory(spec)
    next(run_parts.make_batches(spec, plan.request.batch_size), None)


def launch(plan: Plan, spec: RunSpec, on_event: Callable[[dict[str, Any]], None], hosts: Hosts | None = None) -> None:
    """Runs the ranks of this host to their end. `on_event` gets what they report.

    Raises:
        InvalidInputError: the plan does not fit so many hosts.
        RunFailedError: a rank failed; the others are ended.
    """
    hosts = hosts or Hosts()
    ranks = ranks_here(plan, hosts)
    failures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bapipe-run-") as folder:
        Path(folder, PLAN_FILE).write_text(to_json(plan), encoding="utf-8")
        Path(folder, SPEC_FILE).write_text(spec.model_dump_json(), encoding="utf-8")
        with _torchrun(torchrun_command(ranks, hosts, folder)) as process:
            for event in _events(process):
                if event["event"] == "failed":
                    failures.append(event)
                on_event(event)
            code = process.wait()
    if code:
        raise RunFailedError(_why(failures, code))


def ranks_here(plan: Plan, hosts: Hosts) -> int:
    """How many ranks this host starts: all on a single host, else those of the plan's host of its number."""
    placement = placement_of(plan)
    if hosts.count == 1:
        return len(placement.devices)
    host_of = {device.id: device.host for device in plan.request.cluster.devices}
    used = list(dict.fromkeys(host_of[device] for device in placement.devices))
    if len(used) != hosts.count:
        detail = f"the plan's devices in use are on {len(used)} hosts, and {hosts.count} are to run it"
        raise InvalidInputError([Fault("wrong_length", detail, "/hosts")])
    return sum(host_of[device] == used[hosts.rank] for device in placement.devices)


def torchrun_command(ranks: int, hosts: Hosts, folder: str) -> list[str]:
    """torchrun for the ranks of this host. One host meets on a fresh port of its own; nothing is restarted."""
    if hosts.count == 1:
        meeting = ["--standalone"]
    else:
        address, _, port = (hosts.rendezvous or "").rpartition(":")
        nodes = [f"--nnodes={hosts.count}", f"--node-rank={hosts.rank}"]
        meeting = [*nodes, f"--master-addr={address}", f"--master-port={port}"]
    worker = ["-m", "bapipe_executor.worker", folder]
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--max-restarts=0",
        f"--nproc-per-node={ranks}",
        *meeting,
        *worker,
    ]


@contextmanager
def _torchrun(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, which ends with the block: told to first, then killed."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), *filter(None, [environment.get("PYTHONPATH")])])
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, errors="replace")
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if process.stdout is not None:
            process.stdout.close()


def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """What the ranks report; everything else that they print goes to stderr."""
    assert process.stdout is not None
    for line in process.stdout:
        event = parse(line)
        if event is None:
            sys.stderr.write(line)
        else:
            yield event


def _why(failures: list[dict[str, Any]], code: int) -> str:
    """The first failure is the cause; ranks that lose a neighbour fail after it."""
    if not failures:
        return f"a rank ended without a word (torchrun's exit code is {code}): was it killed, or out of memory?"
    first = failures[0]
    return f"rank {first['rank']} failed: {first['error']}: {first['message']}"
