"""Collects every fault of an input at once, each with a stable code and a JSON pointer (RFC 6901).

A `Document` is a frozen pydantic model. Its field rules and its cross-field rules are both run on every input:
pydantic alone stops before the cross-field rules when a single field is wrong.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from bapipe.errors import Fault, InvalidInputError

MAX_BYTES = 1e15
MAX_SECONDS = 1e9
MAX_COUNT = 10**9
MAX_JSON_DEPTH = 100
MAX_HINTED_NAMES = 300
MAX_FAULTS = 1000
"""So many faults are listed of one input: a hostile one has millions, each of which costs time."""


def _integral(value: Any) -> Any:
    """4e6 is a whole number in JSON, as its schema says; bool is left for the strict rule to refuse."""
    return int(value) if type(value) is float and value.is_integer() else value


Seconds = Annotated[float, Field(strict=True, ge=0, le=MAX_SECONDS, allow_inf_nan=False)]
Duration = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
"""Seconds that are found, not given: sums and quotients of what is given, which its limits keep finite."""
Bytes = Annotated[int, Field(strict=True, ge=0, le=int(MAX_BYTES)), BeforeValidator(_integral)]
BytesPerSample = Annotated[float, Field(strict=True, ge=0, le=MAX_BYTES, allow_inf_nan=False)]
Rate = Annotated[float, Field(strict=True, ge=1e-6, le=1e21, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT), BeforeValidator(_integral)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=200)]
Flag = Annotated[bool, Field(strict=True)]

CODES = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "finite_number": "not_finite",
    "greater_than": "too_small",
    "greater_than_equal": "too_small",
    "less_than": "too_large",
    "less_than_equal": "too_large",
    "too_short": "too_short",
    "too_long": "too_long",
    "string_too_short": "too_short",
    "string_too_long": "too_long",
    "literal_error": "unknown_value",
    "json_invalid": "not_json",
    "union_tag_invalid": "unknown_value",
    "union_tag_not_found": "missing",
}
"""pydantic's error types in our words; every other type of pydantic's own is a `wrong_type`."""

SHOULD_BE = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "string_type": "a string",
    "tuple_type": "an array",
}
"""What the wrong types should have been, in the words of JSON."""


class Document(BaseModel):
    """A frozen value whose every fault is reported in one go."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def cross_field_faults(cls, raw: Any) -> Iterable[Fault]:
        """Faults that no single field shows. `raw` may be malformed: read it with `member` and `members`."""
        del raw
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _collect_every_fault(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        if isinstance(data, cls):
            return data
        details: list[InitErrorDetails] = []
        value = None
        try:
            value = handler(data)
        except ValidationError as error:
            lines = [line for line in error.errors() if not _only_seems_short(line)]
            details = [_detail(cls, line) for line in lines[: MAX_FAULTS + 1]]
        crossed = islice(cls.cross_field_faults(data if value is None else value), MAX_FAULTS + 1 - len(details))
        details += [
            InitErrorDetails(
                type=PydanticCustomError(fault.code, "{detail}", {"detail": fault.detail}),
                loc=_location(fault.pointer),
                input=None,
            )
            for fault in crossed
        ]
        if details or value is None:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return value


T = TypeVar("T", bound=BaseModel)


def parse(document: type[T], data: Any, pointer: str = "") -> T:
    """`data` (plain JSON values) as a `document`.

    Raises:
        InvalidInputError: with every fault of the input, pointers below `pointer`.
    """
    try:
        return document.model_validate(data)
    except ValidationError as error:
        raise InvalidInputError(faults_of(error, pointer)) from None


def parse_json(text: str | bytes) -> Any:
    """The JSON value in `text`; NaN and infinities are let through, for the field rules to name.

    Raises:
        InvalidInputError: `not_json` when the text is no JSON, no Unicode, or nested too deeply.
    """
    try:
        text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        value = json.loads(text, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise InvalidInputError([Fault("not_json", f"not UTF-8: byte {error.start}")]) from None
    except RecursionError:
        raise InvalidInputError([_too_deep()]) from None
    except InvalidInputError:
        raise
    except ValueError as error:
        raise InvalidInputError([Fault("not_json", f"not JSON: {error}")]) from None
    if _deeper_than(value, MAX_JSON_DEPTH):
        raise InvalidInputError([_too_deep()])
    if not _is_unicode(text, value):
        raise InvalidInputError([Fault("not_json", "not Unicode: a string holds half of a surrogate pair")])
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a key given twice says two things, of which none may be dropped."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidInputError([Fault("duplicate_key", f"the key {twice!r} is given twice in one object; give one")])
    return found


def faults_of(error: ValidationError, pointer: str = "") -> list[Fault]:
    """pydantic's error lines as faults, in the order of the input; at most `MAX_FAULTS`, and one that says so."""
    lines = error.errors(include_url=False)
    faults = [
        Fault(_code(line["type"]), _sentence(line), pointer + _pointer(_place(line))) for line in lines[:MAX_FAULTS]
    ]
    if len(lines) > MAX_FAULTS:
        faults.append(Fault("too_many_faults", f"only the first {MAX_FAULTS} faults are listed", pointer))
    return faults


def member(item: Any, name: str) -> Any:
    """Field `name` of a mapping or a model; None where there is none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def members(item: Any, name: str) -> list[Any]:
    """Field `name` as a list; empty where it is absent or no list."""
    value = member(item, name)
    return list(value) if isinstance(value, list | tuple) else []


def number(item: Any, name: str) -> float | None:
    """Field `name` as a float; None where it is absent, no number, or out of a float's range."""
    value = member(item, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def names_of(items: Iterable[Any], key: str = "id") -> set[str]:
    """The `key` of every item that has a string there."""
    return {name for item in items if isinstance(name := member(item, key), str)}


def duplicate_faults(items: list[Any], pointer: str, what: str, key: str = "id") -> list[Fault]:
    """A `duplicate_id` for every item whose `key` was seen before."""
    first: dict[str, int] = {}
    faults = []
    for index, item in enumerate(items):
        name = member(item, key)
        if not isinstance(name, str):
            continue
        if name in first:
            detail = f"{what} {name!r} was already given as item {first[name]}; ids are unique"
            faults.append(Fault("duplicate_id", detail, f"{pointer}/{index}/{key}"))
        first.setdefault(name, index)
    return faults


def unknown_reference(name: Any, known: Collection[str], pointer: str, what: str) -> list[Fault]:
    """A `dangling_reference` when `name` is a string that `known` does not hold."""
    if not isinstance(name, str) or name in known:
        return []
    near = difflib.get_close_matches(name, known, n=1) if len(known) <= MAX_HINTED_NAMES else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return [Fault("dangling_reference", f"there is no {what} {name!r}{hint}", pointer)]


def _only_seems_short(line: Any) -> bool:
    """pydantic counts a list without its wrong items, and calls `["what?"]` empty beside naming the item."""
    return bool(line["type"] == "too_short" and len(line["input"]) >= line["ctx"]["min_length"])


def _detail(document: type[BaseModel], line: Any) -> InitErrorDetails:
    kind: str | PydanticCustomError = line["type"]
    context = line.get("ctx", {})
    if kind == "extra_forbidden" and len(line["loc"]) == 1:
        kind = _unknown_field(document, str(line["loc"][0]))
    elif "detail" in context:
        kind = PydanticCustomError(line["type"], "{detail}", {"detail": context["detail"]})
    return InitErrorDetails(type=kind, loc=line["loc"], input=line["input"], ctx=context)


def _unknown_field(document: type[BaseModel], name: str) -> PydanticCustomError:
    known = sorted(document.model_fields)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known fields: {', '.join(known)}"
    return PydanticCustomError("unknown_field", "{detail}", {"detail": f"there is no field {name!r} here; {hint}"})


def _code(kind: str) -> str:
    if kind in CODES:
        return CODES[kind]
    return "wrong_type" if kind.endswith(("_type", "_parsing", "_from_float")) else kind


def _sentence(line: Any) -> str:
    kind, context = line["type"], line.get("ctx", {})
    if "detail" in context or kind == "missing":
        return str(line["msg"])
    if kind == "union_tag_invalid":
        return f"there is no kind {context['tag']!r}; known are {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return "Field required"
    if kind == "too_short":
        return f"Input should have {context['min_length']} items or more, not {context['actual_length']}"
    if kind == "too_long":
        return f"Input should have {context['max_length']} items or fewer"
    message = f"Input should be {SHOULD_BE[kind]}" if kind in SHOULD_BE else str(line["msg"])
    return f"{message}, not {_shown(line['input'])}"


def _place(line: Any) -> tuple[int | str, ...]:
    """Where a line points to; pydantic points to the whole item where its `kind` is wrong."""
    location: tuple[int | str, ...] = line["loc"]
    return (*location, "kind") if line["type"].startswith("union_tag") else location


def _shown(value: Any) -> str:
    """`value` as JSON writes it, shortened; arrays and objects are not written out, for they may be huge."""
    if isinstance(value, Mapping | list | tuple):
        return "an object" if isinstance(value, Mapping) else "an array"
    text = json.dumps(value[:60], ensure_ascii=False) if isinstance(value, str) else json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."


def _pointer(location: tuple[int | str, ...]) -> str:
    """`location` without pydantic's marks: `[key]` for a fault of the key itself, and the kind of an operator."""
    before = (None, None, *location)
    parts = (
        part
        for part, index, field in zip(location, before[1:], before, strict=False)
        if part != "[key]" and (field != "operators" or not isinstance(index, int) or part == "kind")
    )
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _location(pointer: str) -> tuple[int | str, ...]:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _too_deep() -> Fault:
    return Fault("not_json", f"nested deeper than {MAX_JSON_DEPTH} levels; flatten the document")


def _is_unicode(text: str, value: Any) -> bool:
    """False when an escape such as \\ud800 made a string that no encoding can hold."""
    if "\\ud" not in text.lower():
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True
