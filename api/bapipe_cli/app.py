"""The `bapipe` command line: its commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from bapipe_cli.commands.calibrate import calibrate
from bapipe_cli.commands.compare import compare
from bapipe_cli.commands.emulate import emulate
from bapipe_cli.commands.export import export
from bapipe_cli.commands.import_ import import_profile
from bapipe_cli.commands.keys import keys
from bapipe_cli.commands.migrate import migrate
from bapipe_cli.commands.plan import plan
from bapipe_cli.commands.presets import presets
from bapipe_cli.commands.probe import probe
from bapipe_cli.commands.profile import profile
from bapipe_cli.commands.run import run
from bapipe_cli.commands.schedules import schedules
from bapipe_cli.commands.schema import schema
from bapipe_cli.commands.serve import serve
from bapipe_cli.commands.simulate import simulate
from bapipe_cli.commands.validate import validate
from bapipe_cli.commands.worker import worker

EPILOG = (
    "Exit codes: 0 done, 2 wrong usage, 3 invalid input, 4 infeasible, 5 time limit reached with a plan that is not "
    "proven to be the best, 6 server or network, 7 a worker of a run failed, 130 interrupted, 141 the reader of the "
    "output left."
)

app = typer.Typer(
    name="bapipe",
    help="Plan pipeline-parallel training: the partition, the schedule, the micro-batch size, and a proof.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS: dict[Callable[..., None], str] = {
    plan: "Find the fastest plan for a profile on a cluster, and prove it.",
    simulate: "Replay a plan: timeline, step time, devices, links, memory.",
    emulate: "Emulate a plan on FPGAs, and train a network on them.",
    compare: "Set the plan beside what is done without a planner.",
    validate: "Check a plan request; plan nothing.",
    import_profile: "Read a profile of any known format.",
    export: "Write a plan in a format of other programs.",
    schedules: "Compare the schedules on equal stages, with their formulas.",
    presets: "List devices, links and examples, with their sources.",
    profile: "Find out what the layers of a torch network cost.",
    probe: "Measure the links between workers; write a cluster.",
    run: "Train a torch network as a plan says.",
    calibrate: "Write a profile with the times of a run.",
    serve: "Serve plans over HTTP.",
    worker: "Search the plans that are asked of a service on PostgreSQL.",
    migrate: "Bring the service's store to this release.",
    schema: "Print or write the JSON Schemas of the files.",
}
NAMES: dict[Callable[..., None], str] = {import_profile: "import"}
"""Of commands that Python does not let a function have."""

for command, summary in COMMANDS.items():
    app.command(NAMES.get(command), short_help=summary, epilog=EPILOG)(command)
app.add_typer(keys, short_help="Make, list and revoke the keys of the service.")


def show_version(wanted: bool) -> None:
    """Prints the installed version and leaves."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"bapipe {version('bapipe')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    del version
