"""BaPipe's own JSON: the domain types as they are, read and written."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel

from bapipe.errors import Fault, FormatError
from bapipe.faults import Document, parse
from bapipe.plan import Plan
from bapipe.problem import Cluster, ModelProfile, PlanRequest

DOCUMENTS = {
    "a BaPipe plan": ("request", "status"),
    "a BaPipe plan request": ("profile", "cluster"),
    "a BaPipe model profile": ("layers",),
    "a BaPipe cluster": ("kinds", "devices"),
    "a dnn-partitioning graph": ("nodes", "maxFPGAs"),
    "a Piper graph": ("nodes", "maxMemoryPerDevice"),
}
"""What JSON documents are told by: all of these fields."""

TYPES: dict[type[Document], str] = {
    Plan: "a BaPipe plan",
    PlanRequest: "a BaPipe plan request",
    ModelProfile: "a BaPipe model profile",
    Cluster: "a BaPipe cluster",
}
D = TypeVar("D", ModelProfile, Cluster, Plan, PlanRequest)


def looks_like_json(text: str) -> bool:
    """Whether `text` starts as a JSON object or array does, or is another JSON value, such as null."""
    if text.lstrip()[:1] in ("{", "["):
        return True
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def document_from(document: type[D], data: Any) -> D:
    """The profile, cluster, plan or plan request in plain JSON values.

    Raises:
        FormatError: `wrong_document` when the fields are those of another document.
        InvalidInputError: with every fault of the document.
    """
    return parse(document, recognised(document, data))


def recognised(document: type[Document], data: Any) -> Any:
    """`data` as it is.

    Raises:
        FormatError: `wrong_document` when the fields are those of another document.
    """
    wanted = TYPES[document]
    what = _other_document(data, wanted)
    if what is not None:
        raise FormatError([Fault("wrong_document", f"this is {what}, not {wanted.replace('BaPipe ', '')}")])
    return data


def to_json(document: BaseModel) -> str:
    """`document` as JSON that reads back equal: one line a field, and one an item of a list of objects.

    Fields that have their default value are left out, but for `schema_version`.
    """
    version = {"schema_version": getattr(document, "schema_version", None)}
    data = document.model_dump(mode="json", exclude_defaults=True)
    fields = {name: value for name, value in {**version, **data}.items() if value is not None}
    lines = [f"  {json.dumps(name)}: {_value(value)}" for name, value in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _value(value: Any) -> str:
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "[\n    " + ",\n    ".join(_compact(item) for item in value) + "\n  ]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _other_document(data: Any, wanted: str) -> str | None:
    if not isinstance(data, dict) or any(field in data for field in DOCUMENTS[wanted]):
        return None
    for what, fields in DOCUMENTS.items():
        if all(field in data for field in fields):
            return what
    return None
