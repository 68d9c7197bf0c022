"""The main paths of the command line, as processes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bapipe.schemas import json_schema


def test_a_plan_is_written_read_again_and_simulated_to_the_same_time(bapipe: Any, tmp_path: Path) -> None:
    planned = bapipe("plan", "vgg16", "4xV100-16G:pcie3", "--batch", "32", "--json", "-o", "plan.json")

    assert (planned.returncode, planned.stderr) == (0, "")
    plan = json.loads(planned.stdout)
    assert json.loads((tmp_path / "plan.json").read_text()) == plan
    assert plan["status"] == "optimal"
    Draft202012Validator(json_schema("plan")).validate(plan)
    simulated = bapipe("simulate", "plan.json", "--json")
    assert simulated.returncode == 0
    assert json.loads(simulated.stdout) == plan["prediction"] | {"faults": []}


def test_the_tables_say_what_the_json_says(bapipe: Any) -> None:
    arguments = ("plan", "vgg16", "2xV100-16G:pcie3", "--batch", "8", "--schedules", "gpipe,1f1b")
    plan = json.loads(bapipe(*arguments, "--json").stdout)

    text = bapipe(*arguments)

    assert text.returncode == 0
    assert text.stderr == ""
    assert text.stdout.startswith(f"optimal: {plan['schedule']['name']} over {len(plan['stages'])} stage")
    for baseline in plan["baselines"]:
        assert baseline["name"] in text.stdout


def test_simulate_draws_the_timeline_in_the_terminal_and_as_a_page(bapipe: Any, tmp_path: Path) -> None:
    bapipe("plan", "vgg16", "2xV100-16G:pcie3", "--batch", "8", "--schedules", "1f1b", "-o", "plan.json")

    result = bapipe("simulate", "plan.json", "--width", "100", "--html", "timeline.html")

    assert result.returncode == 0
    assert "F- forward, B= backward" in result.stdout
    assert (tmp_path / "timeline.html").read_text().startswith("<!doctype html>")


def test_compare_makes_one_table_of_several_clusters(bapipe: Any) -> None:
    clusters = ("2xV100-16G:pcie3", "2xV100-16G:nvlink2")

    rows = json.loads(bapipe("compare", "vgg16", *clusters, "--batch", "8", "--json").stdout)
    text = bapipe("compare", "vgg16", *clusters, "--batch", "8")

    assert [row["cluster"] for row in rows] == list(clusters)
    names = [baseline["name"] for baseline in rows[0]["baselines"]]
    assert names == ["data-parallel", "data-parallel-blocking", "gpipe-equal-layers", "1f1b-equal-layers"]
    assert all(baseline["speedup"] >= 1 for row in rows for baseline in row["baselines"])
    assert all(cluster in text.stdout for cluster in clusters)


def test_what_fits_nowhere_is_infeasible(bapipe: Any, tmp_path: Path) -> None:
    cluster = {
        "kinds": [{"name": "V100-16G", "memory_bytes": 1000}],
        "devices": [{"id": "a", "kind": "V100-16G"}, {"id": "b", "kind": "V100-16G"}],
        "links": {"within_host": {"bandwidth_bytes_per_s": 1e9}},
    }
    (tmp_path / "tiny.json").write_text(json.dumps(cluster))

    result = bapipe("plan", "vgg16", "tiny.json", "--batch", "4", "-o", "plan.json")

    assert result.returncode == 4
    assert result.stdout.startswith("infeasible")
    assert bapipe("simulate", "plan.json").returncode == 4


def test_the_time_limit_gives_the_best_plan_so_far(bapipe: Any, hard_profile: str) -> None:
    options = ("--batch", "64", "--schedules", "1f1b", "--time-limit", "5", "--json")

    result = bapipe("plan", hard_profile, "32xreference:1GB/s", *options)

    assert result.returncode == 5
    plan = json.loads(result.stdout)
    assert plan["status"] == "feasible"
    assert plan["proof"]["lower_bound_s"] <= plan["prediction"]["step_time_s"]


def test_ctrl_c_gives_the_best_plan_so_far(hard_profile: str, read_until: Any) -> None:
    """As in a terminal, where Ctrl-C reaches every process of the command."""
    terminal, its_end = pty.openpty()
    options = ["--batch", "64", "--schedules", "1f1b", "--time-limit", "600", "--json"]
    command = [sys.executable, "-m", "bapipe_cli", "plan", hard_profile, "32xreference:1GB/s", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its_end, start_new_session=True)
    try:
        read_until(terminal, "best ", process)
        os.killpg(process.pid, signal.SIGINT)
        stdout, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(terminal)
        os.close(its_end)

    assert process.returncode == 130
    plan = json.loads(stdout)
    assert plan["status"] == "feasible"
    assert len(plan["stages"]) >= 1


def test_the_service_answers_as_the_command_does(bapipe: Any, service: str) -> None:
    arguments = ("plan", "vgg16", "2xV100-16G:pcie3", "--batch", "8", "--json")

    here, there = bapipe(*arguments), bapipe(*arguments, "--server", service)

    assert (there.returncode, there.stderr) == (0, "")
    plans = [json.loads(result.stdout) for result in (here, there)]
    for plan in plans:
        del plan["proof"]["wall_s"]
    assert plans[0] == plans[1]


def test_a_fault_is_the_same_through_the_service(bapipe: Any, service: str) -> None:
    arguments = ("plan", "vgg16", "2xV100-16G:pcie3", "--batch", "8", "--solver", "milp", "--json")

    here, there = bapipe(*arguments), bapipe(*arguments, "--server", service)

    assert here.returncode == there.returncode == 3
    assert here.stderr == there.stderr
    assert json.loads(here.stdout) == json.loads(there.stdout)


def test_a_service_that_is_not_there(bapipe: Any) -> None:
    result = bapipe("plan", "vgg16", "2xV100-16G:pcie3", "--batch", "8", "--server", "http://127.0.0.1:1")

    assert result.returncode == 6
    assert result.stderr.startswith("bapipe: ")
    assert "Traceback" not in result.stderr


def test_faults_of_a_file_keep_stdout_for_results(bapipe: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"name": "bad", "layers": [{"id": "a", "parameter_bytes": NaN}]}')

    result = bapipe("plan", "bad.json", "2xreference", "--batch", "8")

    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.startswith("/profile/layers/0/parameter_bytes: ")


def test_a_profile_from_stdin(bapipe: Any) -> None:
    layers = [
        {"id": name, "times": [{"device_kind": "reference", "microbatch_size": 1, "forward_s": 1.0, "backward_s": 2.0}]}
        for name in ("a", "b")
    ]

    result = bapipe(
        "plan",
        "-",
        "2xreference",
        "--batch",
        "4",
        "--schedules",
        "1f1b",
        input=json.dumps({"name": "two", "layers": layers}),
    )

    assert result.returncode == 0
    assert "15.00 s a step" in result.stdout


def test_a_pipedream_file_is_for_the_mini_batch_unless_said_otherwise(bapipe: Any, tmp_path: Path) -> None:
    node = "-- forward_compute_time=4.000, backward_compute_time=8.000, activation_size=400.000, parameter_size=40.000"
    (tmp_path / "graph.txt").write_text(f"node1 -- A {node}\nnode2 -- B {node}\n\tnode1 -- node2\n")
    options = ("--batch", "8", "--microbatches", "1", "--max-stages", "1", "--schedules", "gpipe", "--json")

    whole = json.loads(bapipe("plan", "graph.txt", "1xreference", *options).stdout)
    twice = json.loads(bapipe("plan", "graph.txt", "1xreference", *options, "--profile-batch", "4").stdout)

    assert whole["prediction"]["step_time_s"] == pytest.approx(0.024, rel=1e-12)
    assert twice["prediction"]["step_time_s"] == pytest.approx(0.048, rel=1e-12)
