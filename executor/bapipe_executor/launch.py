"""Starts the ranks of a run on this host through torchrun, follows them, and ends them when one of them fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import torch

from bapipe.errors import Fault, InvalidInputError
from bapipe.formats import to_json
from bapipe.plan import Plan
from bapipe_executor import rehearsal
from bapipe_executor.checkpoint import complete_checkpoints
from bapipe_executor.events import parse
from bapipe_executor.lifeline import with_parent
from bapipe_executor.placement import placement_of
from bapipe_executor.refusals import plan_faults
from bapipe_executor.run_spec import RunSpec
from bapipe_executor.trial import trial_faults
from bapipe_executor.watch import Watch
from bapipe_executor.worker import PLAN_FILE, SPEC_FILE

GRACE_S = 10.0
"""How long the ranks have to leave when they are told to."""


@dataclass(frozen=True)
class Hosts:
    """This host among `count`, number `rank`; they meet at `rendezvous`, host:port of number 0. One host needs none."""

    count: int = 1
    rank: int = 0
    rendezvous: str | None = None


def check_run(plan: Plan, spec: RunSpec, hosts: Hosts | None = None) -> None:
    """Raises InvalidInputError with everything that keeps the run from starting; no process is started."""
    unsound = plan_faults(plan)
    faults = [*unsound, *checkpoint_faults(spec)]
    if spec.device == "cuda" and not unsound:
        faults += _device_faults(ranks_here(plan, hosts or Hosts()))
    if not faults:
        faults = rehearsal.rehearsal_faults(plan) if spec.emulate_compute else trial_faults(plan, spec)
    if faults:
        raise InvalidInputError(faults)


def _device_faults(ranks: int) -> Iterator[Fault]:
    """Whether there is a CUDA device for every rank of this host."""
    found = torch.cuda.device_count()
    if not found:
        yield Fault("no_device", "torch sees no CUDA device here; take --device cpu", "/device")
    elif found < ranks:
        detail = f"{ranks} ranks are to run on this host, and it has {found} CUDA devices; plan for those"
        yield Fault("no_device", detail, "/device")


def checkpoint_faults(spec: RunSpec) -> list[Fault]:
    """Why the run cannot have the checkpoints that it asks for."""
    if spec.checkpoint is None:
        options = (("--checkpoint-every", spec.checkpoint_every is not None), ("--resume", spec.resume))
        return [
            Fault("missing", f"{option} needs --checkpoint, the folder of the checkpoints", "/checkpoint")
            for option, given in options
            if given
        ]
    folder = Path(spec.checkpoint)
    if folder.exists() and not folder.is_dir():
        return [Fault("wrong_type", f"{folder} is a file; name a folder", "/checkpoint")]
    found = complete_checkpoints(folder)
    if found and not spec.resume:
        detail = f"{folder} has a checkpoint of step {found[-1][0]}; add --resume to go on from it, or name another"
        return [Fault("already_there", detail, "/checkpoint")]
    return []


def launch(
    plan: Plan,
    spec: RunSpec,
    on_event: Callable[[dict[str, Any]], None],
    hosts: Hosts | None = None,
    attempt: int = 0,
) -> None:
    """Runs the ranks of this host to their end. `on_event` gets what they report.

    Raises:
        InvalidInputError: the plan does not fit so many hosts.
        RunFailedError: a rank failed, or no step was done within the timeout; all ranks of this host are ended.
    """
    hosts = hosts or Hosts()
    ranks = ranks_here(plan, hosts)
    watch = Watch(spec.timeout_s)
    with tempfile.TemporaryDirectory(prefix="bapipe-run-") as folder:
        Path(folder, PLAN_FILE).write_text(to_json(plan), encoding="utf-8")
        Path(folder, SPEC_FILE).write_text(spec.model_dump_json(), encoding="utf-8")
        with _torchrun(torchrun_command(ranks, hosts, folder, attempt), watch) as process:
            for event in _events(process, watch):
                watch.note(event)
                on_event(event)
            code = _exit_code(process, watch)
    if code != 0:
        raise watch.failure(code)


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


def torchrun_command(ranks: int, hosts: Hosts, folder: str, attempt: int = 0) -> list[str]:
    """torchrun for the ranks of this host, which restarts nothing.

    One host meets on a fresh port of its own; several at the next port in each attempt, as the last may not be free.
    """
    if hosts.count == 1:
        meeting = ["--standalone"]
    else:
        address, _, port = (hosts.rendezvous or "").rpartition(":")
        nodes = [f"--nnodes={hosts.count}", f"--node-rank={hosts.rank}"]
        meeting = [*nodes, f"--master-addr={address}", f"--master-port={int(port) + attempt}"]
    worker = ["-m", "bapipe_executor.worker", folder]
    return [
        sys.executable,
        "-m",
        "bapipe_executor.torchrun",
        "--max-restarts=0",
        f"--nproc-per-node={ranks}",
        *meeting,
        *worker,
    ]


@contextmanager
def _torchrun(command: list[str], watch: Watch) -> Iterator[subprocess.Popen[str]]:
    """The process, which ends with the block, and all ranks before it."""
    environment = with_parent({"OMP_NUM_THREADS": "1", **os.environ})
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), *filter(None, [environment.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            watch.kill()
            process.send_signal(signal.SIGTERM)  # it ends ranks that had no time to tell of themselves
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _events(process: subprocess.Popen[str], watch: Watch) -> Iterator[dict[str, Any]]:
    """What the ranks report, to their end or the deadline; all else that they print goes to stderr."""
    lines: Queue[str | None] = Queue()
    Thread(target=_read, args=(process, lines), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=max(0.0, watch.deadline_s - time.monotonic()))
        except Empty:
            return
        if line is None:
            return
        event = parse(line)
        if event is None:
            sys.stderr.write(line)
        else:
            yield event


def _read(process: subprocess.Popen[str], lines: Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


def _exit_code(process: subprocess.Popen[str], watch: Watch) -> int | None:
    """torchrun's exit code; None where it does not end by the deadline."""
    try:
        return process.wait(max(0.0, watch.deadline_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
