"""What the user names on the command line, as a request: files, examples, cluster specs and options."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import typer

from bapipe.errors import Fault, FormatError, InvalidInputError
from bapipe.faults import MAX_COUNT, parse
from bapipe.nearest import nearest
from bapipe.plan import Plan
from bapipe.problem import PlanRequest
from bapipe_cli.guard import NothingFitsError

MOST_SHOWN = 100


def plan_request(
    profile: str, cluster: str, options: Mapping[str, Any], *, form: str | None = None, profile_batch: int | None = None
) -> PlanRequest:
    """The request that the arguments describe. Options that are None keep the request's own defaults.

    Raises:
        InvalidInputError: with the faults of profile, cluster and options together, pointers from the request's root.
    """
    fields = {name: value for name, value in options.items() if value is not None}
    batch = profile_batch if profile_batch is not None else _profiled_batch(fields["batch_size"])
    faults: list[Fault] = []
    unread: set[str] = set()
    readers: dict[str, Callable[[], Any]] = {
        "profile": lambda: profile_values(profile, form=form, profile_batch=batch),
        "cluster": lambda: cluster_values(cluster),
    }
    for name, read in readers.items():
        try:
            fields[name] = read()
        except InvalidInputError as error:
            unread.add(f"/{name}")
            faults += [Fault(fault.code, fault.detail, f"/{name}{fault.pointer}") for fault in error.faults]
    try:
        request = parse(PlanRequest, fields)
    except InvalidInputError as error:
        raise InvalidInputError(faults + [fault for fault in error.faults if fault.pointer not in unread]) from None
    return request


def integers(text: str | None, option: str) -> tuple[int, ...] | None:
    """`1,2,4` as numbers.

    Raises:
        typer.BadParameter: something between the commas is no whole number.
    """
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of whole numbers like 1,2,4", param_hint=option) from None


def names(text: str | None) -> tuple[str, ...] | None:
    """`gpipe,1f1b` as names; whether they exist is for the request to say."""
    return None if text is None else tuple(part.strip() for part in text.split(","))


def read_plan(path: str) -> Plan:
    """The plan in a file, `-` for stdin.

    Raises:
        InvalidInputError: it cannot be read, or with every fault of the plan.
    """
    from bapipe.formats import parse_plan

    return parse_plan(read_input(path))


def read_feasible_plan(path: str, do: str) -> Plan:
    """`read_plan`, of a plan that there is something to `do` with.

    Raises:
        NothingFitsError: the plan says that nothing fits.
    """
    plan = read_plan(path)
    if plan.status == "infeasible":
        raise NothingFitsError(do)
    return plan


def read_request(path: str) -> PlanRequest:
    """The plan request in a file, `-` for stdin.

    Raises:
        InvalidInputError: it cannot be read, or with every fault of the request.
    """
    from bapipe.formats import parse_request

    return parse_request(read_input(path))


def read_input(path: str) -> str:
    """The text of a file, `-` for stdin.

    Raises:
        FormatError: it cannot be read, or is not UTF-8.
    """
    from bapipe.formats.reading import decode, read_text

    return decode(_stdin(), "stdin") if path == "-" else read_text(path)


def profile_values(name: str, *, form: str | None, profile_batch: int) -> Any:
    """A file of any imported format, `-` for stdin, or the name of an example. A file wins over an example.

    The rules of a profile are for the request to check, so that its faults come with all others.

    Raises:
        InvalidInputError: it cannot be read, or there is no such file and no such example.
    """
    from bapipe import formats
    from bapipe.examples import example_names, load_example

    if name == "-":
        return formats.profile_values(_stdin(), format=form, profile_batch=profile_batch)
    exists = os.path.exists(name)  # False for what no file can be called, where pathlib raises
    if not exists and name in example_names():
        return load_example(name)
    if not exists and os.sep not in name:
        raise InvalidInputError([_no_profile(name, example_names())])
    return formats.profile_values(name, format=form, profile_batch=profile_batch)


def cluster_values(name: str) -> Any:
    """A cluster file, the name of an example cluster, or a one-line spec such as `4xV100-16G:pcie3`. A file wins.

    Raises:
        InvalidInputError: it cannot be read, or with every fault of the spec.
    """
    from bapipe import formats
    from bapipe.presets import CLUSTER_SPECS, cluster_from_spec

    if os.path.isfile(name) or name.endswith(".json"):
        return formats.cluster_values(name)
    return cluster_from_spec(CLUSTER_SPECS.get(name, name))


def _stdin() -> bytes:
    """All of stdin, within the limit of files.

    Raises:
        FormatError: there is none, it cannot be read, or it is too large.
    """
    from bapipe.formats.reading import read_stream

    if sys.stdin is None:
        raise FormatError([Fault("unreadable_file", "stdin is closed; name a file, or give it one")])
    return read_stream(sys.stdin.buffer, "stdin")


def _profiled_batch(batch: int) -> int:
    """The mini-batch, kept positive: its own fault is the request's to name, and named once."""
    return min(max(batch, 1), MAX_COUNT)


def _no_profile(name: str, examples: Iterable[str]) -> Fault:
    name = name if len(name) <= MOST_SHOWN else f"{name[:MOST_SHOWN]}…"
    near = nearest(name, examples)
    hint = f"did you mean {near!r}?" if near else f"the examples are {', '.join(sorted(examples))}"
    return Fault("no_such_file", f"there is no file and no example {name!r}; {hint}")
