"""Thousands of requests made from the OpenAPI document: no error of the service, no answer that is not documented."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.processes import Service, end, start

LEAST_REQUESTS = 2000
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
ENTRY = "from schemathesis.cli import schemathesis; schemathesis()"


@pytest.fixture
def attacked(tmp_path: Path) -> Iterator[Service]:
    service = start(tmp_path, scripted=True, max_concurrent_solves=2)
    yield service
    end(service)


def test_every_answer_is_as_documented(attacked: Service, tmp_path: Path) -> None:
    """Counts what was sent and found: Hypothesis itself may stumble over Python 3.11's parser, which is no finding."""
    options = ["--phases=examples,coverage", "--workers=2", "--seed=1", "--no-color", "--warnings=off"]
    options += ["--continue-on-failure", f"--checks={','.join(CHECKS)}"]
    command = [sys.executable, "-c", ENTRY, "run", f"{attacked.url}/openapi.json", *options]

    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    counted = re.search(r"(\d+) generated, (\d+) passed", result.stdout)
    assert counted is not None, result.stdout
    generated, passed = map(int, counted.groups())
    assert generated == passed, result.stdout
    assert generated >= LEAST_REQUESTS, result.stdout
    log = attacked.log.read_text()
    assert "Traceback" not in log
    assert not re.search(r'HTTP/1.1\\" 5\d\d', log)
