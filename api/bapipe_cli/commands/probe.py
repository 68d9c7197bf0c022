"""`bapipe probe`: the links between workers, measured by the workers themselves."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from bapipe.quantities import percent_text, rate_text, seconds_text
from bapipe_cli.exits import ExitCode
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import integers
from bapipe_cli.output import check_folder, console, table, visible
from bapipe_cli.termination import ended_in_order

LAST_LINES = 12

RanksOption = Annotated[int, typer.Option("--ranks", min=2, max=512, help="Workers on this host.")]
DeviceOption = Annotated[
    Literal["cpu", "cuda"], typer.Option("--device", help="What they are: gloo or NCCL joins them.")
]
KindOption = Annotated[
    str | None, typer.Option("--device-kind", metavar="NAME", help="What the devices are called in the cluster.")
]
SizesOption = Annotated[
    str | None,
    typer.Option("--sizes", metavar="4096,1048576", help="Bytes of the transfers [default: 4 KiB to 16 MiB]."),
]
RepeatsOption = Annotated[int, typer.Option("--repeats", min=1, help="Transfers of a size, of which the least counts.")]
ContendedOption = Annotated[
    bool, typer.Option("--contended", help="Write each link as it is while all other pairs talk, too.")
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write every figure to this file, as JSON.", show_default=False)
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="The cluster file to write.", show_default=False)]


def probe(
    output: OutputOption,
    ranks: RanksOption = 2,
    device: DeviceOption = "cpu",
    device_kind: KindOption = None,
    sizes: SizesOption = None,
    repeats: RepeatsOption = 20,
    contended: ContendedOption = False,
    report: ReportOption = None,
) -> None:
    """Measure transfers between every pair of ranks of this host, alone and all at once, and all-reduces.

    For several hosts run torchrun on each: torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d
    --rdzv-endpoint HOST:29400 -m bapipe_executor.probe --device cuda --output cluster.json
    """
    check_folder(output, "--output")
    check_folder(report, "--report")
    chosen = _checked_sizes(sizes)
    with user_faults(), ended_in_order(), tempfile.TemporaryDirectory() as folder:
        if importlib.util.find_spec("torch") is None:
            raise ModuleNotFoundError("torch", name="torch")
        found = report or Path(folder, "report.json")
        options = ["--output", str(output), "--report", str(found), "--device", device, "--repeats", str(repeats)]
        options += ["--device-kind", device_kind] if device_kind else []
        options += ["--sizes", ",".join(map(str, chosen))] if chosen else []
        options += ["--contended"] if contended else []
        _launch(ranks, options)
        _show(json.loads(found.read_text(encoding="utf-8")))


def _checked_sizes(text: str | None) -> tuple[int, ...] | None:
    sizes = integers(text, "--sizes")
    if sizes is not None and (len(set(sizes)) < 2 or any(size < 4 or size % 4 for size in sizes)):
        raise typer.BadParameter("give two sizes or more, each a multiple of 4 bytes", param_hint="--sizes")
    return sizes


def _launch(ranks: int, options: list[str]) -> None:
    """Runs the ranks, which end with this process however it ends.

    Raises:
        typer.Exit: they failed; the end of what they wrote is shown.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with subprocess.Popen(
        [*launcher, "-m", "bapipe_executor.probe", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            written, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        typer.echo(f"bapipe: the ranks failed with exit code {process.returncode}; the end of their output:", err=True)
        typer.echo(visible("\n".join(written.splitlines()[-LAST_LINES:])), err=True)
        raise typer.Exit(ExitCode.DEFECT)


def _show(report: dict[str, Any]) -> None:
    out = console()
    out.print(_pairs_table(report["pairs"]))
    out.print()
    out.print(_reductions_table(report["all_reduce"]))
    if report["warnings"]:
        out.print()
        out.print("Warnings")
        for warning in report["warnings"]:
            out.print(f"- {warning}")


def _pairs_table(pairs: list[dict[str, Any]]) -> Table:
    columns = [
        "from",
        "to",
        "latency",
        "bandwidth",
        "worst error",
        "all talk: latency",
        "bandwidth",
        "all-reduce: bandwidth",
    ]
    shown = table("Links", columns, text_columns=2)
    for pair in pairs:
        alone, together = pair["alone"], pair["together"]
        shown.add_row(
            *pair["devices"],
            seconds_text(alone["latency_s"]),
            rate_text(alone["bandwidth_bytes_per_s"]),
            percent_text(alone["worst_error"]),
            seconds_text(together["latency_s"]),
            rate_text(together["bandwidth_bytes_per_s"]),
            rate_text(pair["all_reduce"]["bandwidth_bytes_per_s"]),
        )
    return shown


def _reductions_table(reductions: list[dict[str, Any]]) -> Table:
    shown = table("All-reduce over all ranks", ["bytes", "measured", "by the links alone"], text_columns=0)
    for row in reductions:
        shown.add_row(f"{row['bytes']:,}", seconds_text(row["measured_s"]), seconds_text(row["predicted_s"]))
    return shown
