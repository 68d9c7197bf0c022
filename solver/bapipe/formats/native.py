"""BaPipe's own JSON: the domain types as they are, read and written."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from bapipe.errors import Fault, FormatError
from bapipe.faults import parse, parse_json
from bapipe.problem import ModelProfile

OTHER_DOCUMENTS = {
    "a BaPipe cluster": ("kinds", "devices"),
    "a BaPipe plan request": ("profile", "cluster"),
    "a BaPipe plan": ("request", "status"),
    "a dnn-partitioning graph": ("nodes", "maxFPGAs"),
    "a Piper graph": ("nodes", "maxMemoryPerDevice"),
}
"""What other JSON documents are told by: all of these fields."""


def looks_like_json(text: str) -> bool:
    """Whether `text` starts as a JSON object or array does."""
    return text.lstrip()[:1] in ("{", "[")


def read_native(text: str) -> ModelProfile:
    """The profile in JSON `text`.

    Raises:
        InvalidInputError: no JSON, or with every fault of the profile.
    """
    return profile_from(parse_json(text))


def profile_from(data: Any) -> ModelProfile:
    """The profile in plain JSON values.

    Raises:
        FormatError: `wrong_document` when the fields are those of another document.
        InvalidInputError: with every fault of the profile.
    """
    what = _other_document(data)
    if what is not None:
        detail = f"this is {what}, not a model profile"
        raise FormatError([Fault("wrong_document", detail)])
    return parse(ModelProfile, data)


def to_json(document: BaseModel, *, indent: int | None = 2) -> str:
    """`document` as JSON that reads back equal; fields that have their default value are left out."""
    data = document.model_dump_json(indent=indent, exclude_defaults=True)
    return data + "\n"


def _other_document(data: Any) -> str | None:
    if not isinstance(data, dict) or "layers" in data:
        return None
    for what, fields in OTHER_DOCUMENTS.items():
        if all(field in data for field in fields):
            return what
    return None
