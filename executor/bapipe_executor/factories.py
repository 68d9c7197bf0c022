"""`module:factory` on a command line, as the function that it names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from bapipe.errors import Fault, InvalidInputError
from bapipe.nearest import nearest
from bapipe_executor.failures import reason_of


def load_factory(reference: str, pointer: str) -> Callable[..., Any]:
    """What `package.module:name` names. `pointer` says in faults where the reference was given.

    Raises:
        InvalidInputError: it has another form, or the module or the name is not there or cannot be called.
    """
    module_name, colon, name = reference.partition(":")
    if not colon or not module_name or not name:
        detail = f"{reference!r} names no factory; write module:function, such as bapipe_executor.models.gpt2:tiny"
        raise InvalidInputError([Fault("wrong_reference", detail, pointer)])
    found: Any = _module(module_name, pointer)
    for part in name.split("."):
        if not hasattr(found, part):
            near = nearest(part, [other for other in vars(found) if not other.startswith("_")])
            hint = f"; did you mean {near!r}?" if near else ""
            raise InvalidInputError([Fault("no_such_name", f"{module_name} has no {part!r}{hint}", pointer)])
        found = getattr(found, part)
    if not callable(found):
        detail = f"{reference!r} is no function but {type(found).__name__}; name one that makes what is asked for"
        raise InvalidInputError([Fault("wrong_type", detail, pointer)])
    return found  # type: ignore[no-any-return]


def sibling(reference: str, name: str) -> str | None:
    """`module:name` for the module of another reference, or None where it has no such name."""
    module_name = reference.partition(":")[0]
    return f"{module_name}:{name}" if hasattr(_module(module_name, ""), name) else None


def make(reference: str, pointer: str, *arguments: Any) -> Any:
    """What the factory makes of the arguments.

    Raises:
        InvalidInputError: there is no such factory, or it failed.
    """
    factory = load_factory(reference, pointer)
    try:
        return factory(*arguments)
    except InvalidInputError:
        raise
    except (Exception, SystemExit) as error:
        detail = f"{reference} failed: {reason_of(error)}"
        raise InvalidInputError([Fault("factory_failed", detail, pointer)]) from error


def _module(name: str, pointer: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        detail = f"module {name!r} cannot be imported: {error}; is its folder on the path (PYTHONPATH)?"
        raise InvalidInputError([Fault("no_such_module", detail, pointer)]) from error
    except (Exception, SystemExit) as error:
        detail = f"module {name!r} cannot be imported: {reason_of(error)}"
        raise InvalidInputError([Fault("module_failed", detail, pointer)]) from error
