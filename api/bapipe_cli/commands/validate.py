"""`bapipe validate`: whether a plan request can be planned, and what a plan would assume."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bapipe_cli import options
from bapipe_cli.backend import backend
from bapipe_cli.guard import user_faults
from bapipe_cli.inputs import read_request
from bapipe_cli.output import console
from bapipe_cli.render import print_notes

RequestArgument = Annotated[
    str,
    typer.Argument(metavar="REQUEST", help="A request file, as `bapipe plan --request-only` writes it; - for stdin."),
]


def validate(
    request: RequestArgument, as_json: options.JsonOption = False, server: options.ServerOption = None
) -> None:
    """Check a plan request: every fault of it, or what a plan would assume. Nothing is searched.

    With --server it is held against the limits of that service, too.
    """
    place = backend(server)
    with user_faults(as_json=as_json):
        assumptions = place.validate(read_request(request))
        if as_json:
            typer.echo(json.dumps({"assumptions": assumptions}, indent=2, ensure_ascii=False))
            return
        out = console()
        out.print("the request can be planned")
        print_notes("Assumptions", assumptions, out)
