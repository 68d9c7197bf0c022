"""What goes wrong on the user's side, as a message and an exit code: never as a traceback."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import typer

from bapipe.errors import BaPipeError, Fault, InvalidInputError, RunFailedError, TimeLimitError
from bapipe_cli.exits import ExitCode
from bapipe_cli.listing import fault_lines
from bapipe_cli.output import visible

LIBRARIES = {
    "numpy": "solver",
    "ortools": "solver",
    "pulp": "solver",
    "highspy": "solver",
    "torch": "executor",
    **dict.fromkeys(("alembic", "fastapi", "prometheus_client", "pydantic_settings", "sqlalchemy", "uvicorn"), "api"),
    **dict.fromkeys(("procrastinate", "psycopg", "psycopg_pool"), "postgres"),
}
"""What a command may find missing in a bare installation, and the extra that brings it."""


class ServerError(Exception):
    """The service cannot be reached, or answers with something that is not about the input."""


class NothingFitsError(Exception):
    """The plan says that nothing fits: there is nothing to `do` with it."""

    def __init__(self, do: str) -> None:
        super().__init__(f"the plan says that nothing fits; there is nothing to {do}")


CODES: dict[type[Exception], ExitCode] = {
    ServerError: ExitCode.SERVER,
    NothingFitsError: ExitCode.INFEASIBLE,
    TimeLimitError: ExitCode.TIME_LIMIT,
    RunFailedError: ExitCode.RUN_FAILED,
}


@contextmanager
def user_faults(*, as_json: bool = False) -> Iterator[None]:
    """Runs a command's body. Faults go to stderr, and with `as_json` also to stdout as a problem object.

    Raises:
        typer.Exit: with the code that `ExitCode` gives to what went wrong.
    """
    try:
        yield
    except InvalidInputError as error:
        raise _invalid_input(error.faults, as_json=as_json) from None
    except (ServerError, NothingFitsError, TimeLimitError, RunFailedError) as error:
        raise _exit(f"bapipe: {error}", CODES[type(error)]) from None
    except BaPipeError as error:
        raise _exit(f"bapipe: a defect of BaPipe, please report it: {error}", ExitCode.DEFECT) from None
    except ModuleNotFoundError as error:
        raise _missing_library(error) from None
    except MemoryError:
        raise _exit("bapipe: out of memory", ExitCode.DEFECT) from None
    except KeyboardInterrupt:
        raise _exit("bapipe: interrupted", ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        raise _reader_gone() from None
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        raise _exit(f"bapipe: {place}{error.strerror or error}", ExitCode.USAGE) from None


def problem_object(faults: tuple[Fault, ...]) -> dict[str, Any]:
    """The faults as the service says them (RFC 9457)."""
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    return {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": faults[0].detail if len(faults) == 1 else f"{len(faults)} faults: see errors",
        "errors": [{"code": fault.code, "detail": fault.detail, "pointer": fault.pointer} for fault in faults],
    }


def _invalid_input(faults: tuple[Fault, ...], *, as_json: bool) -> typer.Exit:
    """Each fault is one line, whatever it quotes. The problem object has every fault, and is pure ASCII."""
    for line in fault_lines(faults):
        typer.echo(visible(line, keep=""), err=True)
    if as_json:
        typer.echo(json.dumps(problem_object(faults), indent=2))
    return typer.Exit(ExitCode.INVALID_INPUT)


def _missing_library(error: ModuleNotFoundError) -> typer.Exit:
    """Only what an extra would bring is the user's to install; anything else is a defect, and raised as one."""
    extra = LIBRARIES.get((error.name or "").partition(".")[0])
    if extra is None:
        raise error
    return _exit(f"bapipe: this command needs {error.name}: install bapipe[{extra}]", ExitCode.USAGE)


def _reader_gone() -> typer.Exit:
    """Nothing is said: whoever read the output, such as `head`, has what it wanted."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return typer.Exit(ExitCode.PIPE)


def _exit(message: str, code: ExitCode) -> typer.Exit:
    typer.echo(visible(message), err=True)
    return typer.Exit(code)
