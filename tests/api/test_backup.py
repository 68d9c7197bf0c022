"""The backup of the operations guide, made while the service runs, has its plans."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from bapipe_client import Client

GUIDE = Path(__file__).parents[2] / "docs" / "operations.md"


def test_a_backup_is_a_store(start_service: Any, tmp_path: Path, request_json: dict[str, Any]) -> None:
    running = start_service(database_url=f"sqlite:///{tmp_path}/bapipe.sqlite3")
    (shown,) = re.findall(r"^ {4}python (-c 'import sqlite3.*)$", GUIDE.read_text(encoding="utf-8"), re.M)
    with Client(running.url) as client:
        plan = client.plan(**request_json)
        subprocess.run([sys.executable, *shlex.split(shown)], cwd=tmp_path, check=True)

    restored = start_service(database_url=f"sqlite:///{tmp_path}/backup.sqlite3")
    with Client(restored.url) as client:
        (found,) = client.plans()
        assert client.get_plan(found.id).plan == plan
