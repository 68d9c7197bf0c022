"""What the tables and lines of `plan`, `compare` and `presets` say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bapipe.examples import example_names
from bapipe.presets import CLUSTER_SPECS, device_kinds, links

Document = dict[str, Any]


@pytest.fixture
def files(profile: Document, cluster: Document, write: Any) -> tuple[str, str]:
    return write("profile.json", profile), write("cluster.json", cluster)


def test_a_pipeline_shows_what_its_stages_compute(files: tuple[str, str], run: Any) -> None:
    text = run("plan", *files, "--batch", "4", "--schedules", "1f1b").stdout

    assert text.startswith("optimal: 1f1b over 2 stages, 4 micro-batches of 1 sample; ")
    assert "compute" in text
    assert "load" not in text


@pytest.mark.parametrize(
    ("communication", "says"),
    [("none", "compute alone"), ("overlap", "the larger of"), ("serial", "one after the other")],
)
def test_the_bottleneck_shows_loads_and_what_they_are(
    communication: str, says: str, files: tuple[str, str], run: Any
) -> None:
    text = run("plan", *files, "--batch", "4", "--objective", "bottleneck", "--communication", communication).stdout

    assert f"{says}" in text
    assert "load is " in text


def test_data_parallelism_says_what_a_device_has(files: tuple[str, str], run: Any) -> None:
    text = run("plan", *files, "--batch", "4", "--schedules", "data-parallel", "--microbatch-sizes", "1").stdout

    assert text.startswith("optimal: data-parallel on 2 devices, 2 micro-batches of 1 sample each; ")
    assert "Every device has all layers" in text


def test_one_stage_is_not_a_pipeline(files: tuple[str, str], run: Any) -> None:
    options = ("--schedules", "1f1b", "--max-stages", "1", "--microbatches", "1")

    assert run("plan", *files, "--batch", "4", *options).stdout.startswith("optimal: one device, 1 micro-batch of 4 ")


def test_what_fits_nowhere_is_not_compared(profile: Document, cluster: Document, write: Any, run: Any) -> None:
    cluster["kinds"][0]["memory_bytes"] = 10
    text = run("plan", write("p.json", profile), write("c.json", cluster), "--batch", "4").stdout

    assert " candidates fits; " in text
    assert "unknown" not in text
    assert "faster" not in text


def test_compare_takes_the_options_of_plan(files: tuple[str, str], run: Any) -> None:
    options = ("--batch", "4", "--dtype", "fp16", "--max-stages", "1", "--cuts", "topological-order", "--json")

    result = run("compare", *files, *options)

    assert result.exit_code == 0
    assert json.loads(result.stdout)[0]["stages"] == 1


def test_a_request_can_be_written_instead_of_planned(
    files: tuple[str, str], profile: Document, run: Any, tmp_path: Any
) -> None:
    path = tmp_path / "request.json"
    printed = run("plan", *files, "--batch", "4", "--gap", "0.1", "--request-only")
    written = run("plan", *files, "--batch", "4", "--gap", "0.1", "--request-only", "-o", str(path))

    assert (printed.exit_code, written.exit_code, written.stdout) == (0, 0, "")
    request = json.loads(printed.stdout)
    assert request == json.loads(path.read_text())
    assert (request["batch_size"], request["gap"], request["profile"]["name"]) == (4, 0.1, profile["name"])


def test_presets_lists_everything_and_sources_when_asked(run: Any) -> None:
    listed, with_sources = run("presets").stdout, run("presets", "--sources").stdout

    for name in (*device_kinds(), *links(), *example_names(), *CLUSTER_SPECS):
        assert name in listed
    assert "138,357,544" in listed
    assert "data sheet" not in listed
    assert "data sheet" in with_sources


@pytest.mark.parametrize("name", [*device_kinds(), "H100-80G", *links(), *example_names(), *CLUSTER_SPECS])
def test_every_preset_can_be_shown(name: str, run: Any) -> None:
    text, document = run("presets", name), run("presets", name, "--json")

    assert (text.exit_code, document.exit_code) == (0, 0)
    assert text.stdout
    assert json.loads(document.stdout)


@pytest.mark.parametrize(("name", "hint"), [("V100", "'V100-16G'"), ("PCIE3", "'pcie3'"), ("phone", "lists them")])
def test_a_preset_that_is_not_there(name: str, hint: str, run: Any) -> None:
    result = run("presets", name)

    assert result.exit_code == 2
    assert hint in result.stderr


def test_an_example_cluster_is_a_cluster(files: tuple[str, str], run: Any) -> None:
    request = json.loads(run("plan", "vgg16", "4xV100-gloo", "--batch", "4", "--request-only").stdout)

    assert request["cluster"]["name"] == CLUSTER_SPECS["4xV100-gloo"]


def test_an_example_in_other_case_is_named(run: Any) -> None:
    assert "did you mean 'vgg16'?" in run("plan", "VGG16", "4xV100-gloo", "--batch", "4").stderr
