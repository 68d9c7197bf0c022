"""The exported JSON Schemas are those of the types, and say yes and no as the types do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bapipe.examples import example_names, load_example
from bapipe.presets import CLUSTER_SPECS, cluster_from_spec
from bapipe.schemas import DOCUMENTS, json_schema, json_schema_text

ROOT = Path(__file__).parents[2]
EXPORTED, EXAMPLES = ROOT / "docs" / "schemas", ROOT / "examples"


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json_schema(name))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_exported_file_is_up_to_date(name: str) -> None:
    exported = (EXPORTED / f"{name}.json").read_text(encoding="utf-8")

    assert exported == json_schema_text(name), "run `make schemas`"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_schema_is_valid_itself(name: str) -> None:
    Draft202012Validator.check_schema(json_schema(name))


@pytest.mark.parametrize("name", example_names())
def test_an_example_profile_validates(name: str) -> None:
    validator("model-profile").validate(json.loads(load_example(name).model_dump_json()))


@pytest.mark.parametrize("name", CLUSTER_SPECS)
def test_an_example_cluster_validates(name: str) -> None:
    validator("cluster").validate(json.loads(cluster_from_spec(CLUSTER_SPECS[name]).model_dump_json()))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.name)
def test_an_example_file_validates(path: Path) -> None:
    kinds = {".cluster.json": "cluster", ".request.json": "plan-request"}
    name = next((kind for end, kind in kinds.items() if path.name.endswith(end)), "model-profile")
    validator(name).validate(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("field", "value"),
    [("layers", []), ("name", ""), ("schema_version", 2), ("bytes_per_parameter", 0), ("colour", "blue")],
)
def test_what_the_type_refuses_the_schema_refuses(field: str, value: Any) -> None:
    layer = {"id": "a", "times": []}

    assert validator("model-profile").is_valid({"name": "one", "layers": [layer]})
    assert not validator("model-profile").is_valid({"name": "one", "layers": [layer], field: value})
