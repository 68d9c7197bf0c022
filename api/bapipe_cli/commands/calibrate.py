"""`bapipe calibrate`: what a run took becomes the times of a profile, to plan again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bapipe_cli.guard import user_faults
from bapipe_cli.output import check_folder, console, write_file

FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder of a run's report, from `bapipe run --report DIR`.")
]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="Write the profile to this file, as JSON.")]


def calibrate(folder: FolderArgument, output: OutputOption) -> None:
    """Write the profile of a plan that was run, with the times that were measured; then plan again.

    A run tells the times of stages: the layers of a stage are scaled alike.
    """
    check_folder(output, "--output")
    with user_faults():
        from bapipe.formats import to_json
        from bapipe_executor.measured.report_files import calibrated_profile

        made = calibrated_profile(folder)
        write_file(output, to_json(made))
        console().print(f"{made.name}: the times of {len(made.layers)} layers, from {folder}")
