"""The HTTP interface as a page for people, made from the OpenAPI document: `make reference` writes docs/api.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from bapipe_api.app import create_app
from bapipe_api.settings import Settings

INTRODUCTION = """\
# The HTTP interface

Written from the OpenAPI document, which the service has at `/openapi.json` with every schema and examples of requests.
[service.md](service.md) says how the parts work together. `make reference` writes this page anew.
"""


def reference() -> str:
    """The page: every route with its parameters, bodies and answers, in Markdown."""
    document = create_app(Settings()).openapi()
    parts = [INTRODUCTION]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append("\n".join(_operation(f"{method.upper()} {path}", operation)))
    return "\n".join(parts)


def _operation(name: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"**{operation['summary']}.** {_one_line(operation.get('description', ''))}".rstrip() + "\n"
    parameters = operation.get("parameters", [])
    if parameters:
        yield "| Parameter | In | |\n|---|---|---|"
        for parameter in parameters:
            text = _cell(parameter.get("description", ""))
            yield f"| `{parameter['name']}` | {parameter['in']} | {text} |"
        yield ""
    body = operation.get("requestBody")
    if body:
        kinds = ", ".join(f"`{kind}`" for kind in body["content"])
        yield f"Body: {_schema(next(iter(body['content'].values())))}{kinds}\n"
    yield "| Status | Answer | |\n|---|---|---|"
    for status, response in operation["responses"].items():
        yield f"| {status} | {_answer(response)} | {_meaning(response)} |"
    yield ""


def _meaning(response: dict[str, Any]) -> str:
    """FastAPI's own words for an answer that nobody described say nothing."""
    said = _cell(response.get("description", ""))
    return "" if said == "Successful Response" else said


def _answer(response: dict[str, Any]) -> str:
    content = response.get("content", {})
    named = {_schema(value).removesuffix(", ") or f"`{kind}`" for kind, value in content.items()}
    return ", ".join(sorted(named))


def _schema(content: dict[str, Any]) -> str:
    """The name of the schema, if it has one."""
    reference = content.get("schema", {}).get("$ref", "")
    return f"{reference.rpartition('/')[2]}, " if reference else ""


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(reference())
