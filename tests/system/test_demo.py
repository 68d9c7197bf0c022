"""`make demo` shows the whole way, and leaves no service behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

DEMO = [sys.executable, "-m", "bapipe_cli.demo"]


def test_the_demo_plans_shows_and_writes(tmp_path: Path) -> None:
    result = subprocess.run(DEMO, cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False)

    assert (result.returncode, result.stderr) == (0, "")
    for shown in ("optimal: ", "proof: ", "Comparison", "F- forward"):
        assert shown in result.stdout
    assert json.loads((tmp_path / "demo/plan.json").read_text())["status"] == "optimal"
    assert "</html>" in (tmp_path / "demo/timeline.html").read_text()


def test_a_demo_that_is_ended_ends_its_service(tmp_path: Path, answers: Any, read_until: Any) -> None:
    with subprocess.Popen(DEMO, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = read_until(process.stdout.fileno(), "samples a step", process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    url = re.search(r"http://[\d.:]+\d", line)
    assert url is not None
    assert process.returncode == 128 + signal.SIGTERM
    assert not answers(url[0])
