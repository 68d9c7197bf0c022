"""The arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bapipe.problem import Communication, Cuts, DType

Task = Literal["training", "inference"]
SearchedObjective = Literal["step-time", "bottleneck"]

PROFILE_HELP = "A profile file of any imported format (- for stdin), or the name of an example: see `bapipe presets`."
CLUSTER_HELP = (
    "A cluster file, the name of an example, or a spec: 4xV100-16G:pcie3, 8xreference:10GB/s, "
    "'2x(4xA100-40G:nvlink3):100Gb'."
)

ProfileArgument = Annotated[str, typer.Argument(metavar="PROFILE", help=PROFILE_HELP, show_default=False)]
ClusterArgument = Annotated[str, typer.Argument(metavar="CLUSTER", help=CLUSTER_HELP, show_default=False)]
ClusterArguments = Annotated[list[str], typer.Argument(metavar="CLUSTER...", help=CLUSTER_HELP, show_default=False)]

BatchOption = Annotated[
    int, typer.Option("--batch", help="Samples per weight update, over all devices.", show_default=False)
]
TaskOption = Annotated[Task, typer.Option("--task", help="Inference has no backward and no optimizer.")]
ObjectiveOption = Annotated[SearchedObjective, typer.Option("--objective", help="What is made as small as possible.")]
CommunicationOption = Annotated[
    Communication, typer.Option("--communication", help="How transfers count in the bottleneck (step time: simulated).")
]
CutsOption = Annotated[Cuts, typer.Option("--cuts", help="Cuts anywhere in the graph, or along one order of it.")]
SchedulesOption = Annotated[
    str | None,
    typer.Option(
        "--schedules",
        metavar="A,B",
        help="Only these schedules [default: all that the links allow]; pipedream only where named here.",
    ),
]
SizesOption = Annotated[
    str | None,
    typer.Option(
        "--microbatch-sizes",
        metavar="1,2,4",
        help="Only micro-batches of so many samples [default: all that divide the mini-batch; bottleneck: all of it].",
    ),
]
CountsOption = Annotated[
    str | None, typer.Option("--microbatches", metavar="8,16", help="Only so many micro-batches a mini-batch.")
]
StagesOption = Annotated[int | None, typer.Option("--max-stages", help="At most so many stages.")]
SolverOption = Annotated[
    str,
    typer.Option(
        "--solver",
        metavar="NAME",
        help="What searches the bottleneck: auto, dp, cp-sat, milp (HiGHS), or milp:NAME with a solver of PuLP.",
    ),
]
SolverLogOption = Annotated[bool, typer.Option("--solver-log", help="Write what the solver says to stderr.")]
ProfileBatchOption = Annotated[
    int | None,
    typer.Option("--profile-batch", help="Samples that a PipeDream file's times are for [default: the mini-batch]."),
]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="The profile's format [default: found by its content].")
]
MeasuredOnOption = Annotated[
    str | None, typer.Option("--measured-on", metavar="KIND", help="The device kind that the profile's times are from.")
]
DTypeOption = Annotated[DType, typer.Option("--dtype", help="The arithmetic that peak FLOP/s are taken for.")]
OptimizerOption = Annotated[
    int,
    typer.Option("--optimizer-bytes-per-parameter", help="State kept a parameter: 8 Adam, 4 momentum, 0 plain SGD."),
]
TimeLimitOption = Annotated[
    float, typer.Option("--time-limit", metavar="S", help="Seconds of wall clock for the search.")
]
GapOption = Annotated[
    float, typer.Option("--gap", metavar="G", help="Stop when proven this close: 0.01 is within 1 %.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout instead of tables.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the plan to this file, as JSON.", show_default=False)
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Have this service do it, not this machine.", show_default=False),
]
RequestOnlyOption = Annotated[
    bool,
    typer.Option("--request-only", help="Write the request to -o or stdout, as the service takes it; plan nothing."),
]
