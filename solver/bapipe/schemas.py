"""The JSON Schemas of the documents that BaPipe reads and writes, made from the types themselves."""

from __future__ import annotations

import json
from typing import Any

from bapipe.faults import Document
from bapipe.plan import Plan
from bapipe.problem import Cluster, ModelProfile, PlanRequest

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS: dict[str, type[Document]] = {
    "model-profile": ModelProfile,
    "cluster": Cluster,
    "plan-request": PlanRequest,
    "plan": Plan,
}


def json_schema(name: str) -> dict[str, Any]:
    """The schema of document `name`, a key of `DOCUMENTS`. Rules across fields are not in it: `parse` has those."""
    schema = DOCUMENTS[name].model_json_schema()
    return {"$schema": DIALECT, "$id": f"urn:bapipe:schema:{name}:1", **schema}


def json_schema_text(name: str) -> str:
    """The schema as the file under docs/schemas holds it."""
    return json.dumps(json_schema(name), indent=2, ensure_ascii=False) + "\n"
