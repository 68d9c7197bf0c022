"""`make demo`: VGG-16 planned for four V100s by the service, a real process on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bapipe.examples import load_example
from bapipe.plan import Plan
from bapipe.presets import cluster_from_spec
from bapipe.problem import PlanRequest
from bapipe.simulator import simulate
from bapipe.timeline import ascii_timeline, html_timeline
from bapipe_cli.guard import ServerError, user_faults
from bapipe_cli.output import console, write_file
from bapipe_cli.render import print_plan
from bapipe_cli.there import There

EXAMPLE, CLUSTER, BATCH = "vgg16", "4xV100-16G:pcie3", 32
TIME_LIMIT_S = 30.0
START_LIMIT_S = 60.0
STOP_LIMIT_S = 15.0
FOLDER = Path("demo")


class ServiceNotStartedError(ServerError):
    """The service ended, or did not answer in time; the message holds what it printed."""


def main() -> None:
    """Starts the service, plans, shows, writes, stops the service: also after an error or a signal."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    out = console()
    with user_faults(), tempfile.TemporaryDirectory(prefix="bapipe-demo-") as folder:
        request = PlanRequest(
            profile=load_example(EXAMPLE),
            cluster=cluster_from_spec(CLUSTER),
            batch_size=BATCH,
            time_limit_s=TIME_LIMIT_S,
        )
        with service(Path(folder)) as url:
            out.print(f"The service runs on {url}. Submitting {EXAMPLE} on {CLUSTER}, {BATCH} samples a step.\n")
            plan, _ = There(url).plan(request, "planning")
        show(plan)


def show(plan: Plan) -> None:
    """Prints the plan and its timeline, and writes both to the demo folder."""
    out = console()
    print_plan(plan, out)
    simulation = simulate(plan)
    out.print(f"\n{ascii_timeline(simulation, out.width)}\n", soft_wrap=True)
    FOLDER.mkdir(exist_ok=True)
    write_file(FOLDER / "plan.json", plan.model_dump_json(indent=2) + "\n")
    write_file(FOLDER / "timeline.html", html_timeline(plan, simulation))
    out.print(f"The service is stopped. Written: {FOLDER / 'plan.json'}, {FOLDER / 'timeline.html'}")


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """Runs `bapipe serve` with its database and log in `folder`, and yields its address once it is ready.

    Raises:
        ServiceNotStartedError: it is not ready within `START_LIMIT_S`.
    """
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "bapipe_cli",
        "serve",
        "--port",
        str(port),
        "--database",
        str(folder / "demo.sqlite3"),
    ]
    log = folder / "service.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(process, url, log)
        yield url
    finally:
        stop(process)


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Returns once the service at `url` is ready."""
    from bapipe_client import Client

    deadline = time.monotonic() + START_LIMIT_S
    with Client(url) as client:
        while not client.ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServiceNotStartedError(f"the service at {url} is not there:\n{log.read_text()}")
            time.sleep(0.1)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Asks the service to stop, and ends it if it does not."""
    process.terminate()
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port on loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
