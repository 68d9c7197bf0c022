"""Profiles, clusters and plans from files: each import format in a file of its own, found by its content.

>>> profile = load_profile("vgg16.graph.txt", profile_batch=128)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bapipe.errors import Fault, FormatError, InvalidInputError
from bapipe.faults import parse, parse_json, unknown_reference
from bapipe.formats.native import document_from, looks_like_json, recognised, to_json
from bapipe.formats.pipedream import looks_like_pipedream, read_pipedream
from bapipe.formats.reading import decode, read_text
from bapipe.plan import Plan
from bapipe.problem import Cluster, ModelProfile, PlanRequest

__all__ = [
    "FORMATS",
    "cluster_values",
    "load_cluster",
    "load_plan",
    "load_profile",
    "parse_plan",
    "parse_profile",
    "parse_request",
    "profile_values",
    "to_json",
]

FORMATS = {
    "json": "BaPipe's own JSON",
    "pipedream": "PipeDream graph.txt",
}
"""Names of the profile formats, as `format` takes them, and what they are."""

MAX_NAME_LENGTH = 200


def load_profile(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    format: str | None = None,  # noqa: A002  the word that every caller knows
    profile_batch: int | None = None,
) -> ModelProfile:
    """The profile in a file, in text, or in plain JSON values.

    A `str` that holds a line break or starts a JSON object is the text itself, any other is a path. `format` forces one
    of `FORMATS`; without it the content tells. `profile_batch` is the mini-batch a PipeDream file was measured with.

    Raises:
        FormatError: the file cannot be read, is of no known format, or breaks the rules of its own.
        InvalidInputError: with every fault of the profile; `missing_profile_batch`.
    """
    if isinstance(source, Mapping):
        return document_from(ModelProfile, dict(source))
    if isinstance(source, str) and _is_text(source):
        return parse_profile(source, format=format, profile_batch=profile_batch)
    return parse(ModelProfile, profile_values(source, format=format, profile_batch=profile_batch))


def profile_values(
    source: str | os.PathLike[str] | bytes,
    *,
    format: str | None = None,  # noqa: A002  as in load_profile
    profile_batch: int | None = None,
) -> Any:
    """The profile in the file at `source`, or in text as bytes, for a request to check it together with all else.

    Plain JSON values, unchecked; from another format the `ModelProfile` itself.

    Raises:
        FormatError: as `load_profile`.
        InvalidInputError: no JSON, or with every fault of a profile in another format.
    """
    if isinstance(source, bytes):
        return _values(source, format, profile_batch, "profile")
    name = Path(source).name.removesuffix(".txt").removesuffix(".graph")
    return _values(read_text(source), format, profile_batch, name)


def parse_profile(
    text: str | bytes,
    *,
    format: str | None = None,  # noqa: A002  as in load_profile
    profile_batch: int | None = None,
    name: str = "profile",
) -> ModelProfile:
    """The profile in `text`; `name` is for formats that do not name the model. Otherwise as `load_profile`."""
    return parse(ModelProfile, _values(text, format, profile_batch, name))


def cluster_values(path: str | os.PathLike[str]) -> Any:
    """The plain JSON values of the cluster in a file, for a request to check them together with all else.

    Raises:
        FormatError: the file cannot be read, or is another document.
        InvalidInputError: no JSON.
    """
    return recognised(Cluster, parse_json(read_text(path)))


def load_cluster(path: str | os.PathLike[str]) -> Cluster:
    """The cluster in a JSON file.

    Raises:
        FormatError: the file cannot be read, or is another document.
        InvalidInputError: with every fault of the cluster.
    """
    return parse(Cluster, cluster_values(path))


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in a JSON file.

    Raises:
        FormatError: the file cannot be read, or is another document.
        InvalidInputError: with every fault of the plan.
    """
    return parse_plan(read_text(path))


def parse_plan(text: str | bytes) -> Plan:
    """The plan in JSON `text`. Otherwise as `load_plan`."""
    return document_from(Plan, parse_json(text))


def parse_request(text: str | bytes) -> PlanRequest:
    """The plan request in JSON `text`, as `bapipe plan --request-only` writes it and the service takes it.

    Raises:
        FormatError: this is another document.
        InvalidInputError: with every fault of the request.
    """
    return document_from(PlanRequest, parse_json(text))


def _values(text: str | bytes, form: str | None, profile_batch: int | None, name: str) -> Any:
    text = decode(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, "the text")
    form = form if form is not None else _form_of(text)
    faults = unknown_reference(form, FORMATS, "/format", "format")
    if faults:
        raise FormatError([Fault("unknown_format", f"{faults[0].detail}; {_known()}", "/format")])
    if form == "json":
        return recognised(ModelProfile, parse_json(text))
    if profile_batch is None:
        detail = "a PipeDream file does not say how many samples its times are for: give profile_batch"
        raise InvalidInputError([Fault("missing_profile_batch", detail, "/profile_batch")])
    return read_pipedream(text, profile_batch, name[:MAX_NAME_LENGTH] or "profile")


def _is_text(source: str) -> bool:
    return "\n" in source or source.lstrip().startswith("{")


def _form_of(text: str) -> str:
    if looks_like_json(text):
        return "json"
    if looks_like_pipedream(text):
        return "pipedream"
    raise FormatError([Fault("unknown_format", f"this is of no known format; {_known()}")])


def _known() -> str:
    return "known formats: " + ", ".join(f"{name} ({what})" for name, what in FORMATS.items())
