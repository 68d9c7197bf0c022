"""The example networks against published counts, and the files in examples/ against their generator."""

from __future__ import annotations

from pathlib import Path

import pytest

from bapipe.errors import InvalidInputError
from bapipe.examples import example_names, load_example
from bapipe.examples.__main__ import documents
from bapipe.examples.kernels import KINDS, MICROBATCH_SIZES
from bapipe.formats import load_cluster, load_profile
from bapipe.presets import clusters
from bapipe.problem import ModelProfile

FILES = Path(__file__).parents[3] / "examples"
BY_HAND = {"tiny.json", "tiny.cluster.json", "tiny.request.json"}


def parameters(profile: ModelProfile) -> int:
    return sum(layer.parameter_bytes for layer in profile.layers) // profile.bytes_per_parameter


def forward_macs(profile: ModelProfile) -> float:
    return sum(layer.forward_flops_per_sample or 0.0 for layer in profile.layers) / 2


def step_s(profile: ModelProfile, kind: str, size: int) -> float:
    times = [time for layer in profile.layers for time in layer.times]
    return sum(
        time.forward_s + time.backward_s
        for time in times
        if (time.device_kind, time.microbatch_size) == (kind, size)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vgg16", 138_357_544),
        ("resnet50", 25_557_032),
        ("gpt2-medium", 354_823_168 + 50_257 * 1024),
        # Two embeddings, 8 LSTM layers of which the first has two directions, attention, classifier.
        ("gnmt8", 2 * 33_095_680 + 16_793_600 + 4 * 12_591_104 + 3 * 8_396_800 + 2_099_201 + 33_128_000),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, count: int) -> None:
    assert parameters(load_example(name)) == count


@pytest.mark.parametrize(("name", "macs"), [("vgg16", 15.5e9), ("resnet50", 4.1e9)])
def test_operations_are_the_published_ones(name: str, macs: float) -> None:
    assert forward_macs(load_example(name)) == pytest.approx(macs, rel=0.015)


def test_gpt2_operations_follow_its_parameters() -> None:
    """A MAC a weight and token in blocks and head, and 2·T·d a token and block for scores and context."""
    matrices = 24 * 12 * 1024**2 + 50_257 * 1024
    expected = 1024 * (matrices + 24 * 2 * 1024 * 1024)
    assert forward_macs(load_example("gpt2-medium")) == pytest.approx(expected, rel=0.01)


def test_resnet50_trains_at_the_published_rate_that_sets_the_efficiency() -> None:
    assert 128 / step_s(load_example("resnet50"), "V100-16G", 128) == pytest.approx(367, rel=0.01)


@pytest.mark.parametrize("name", example_names())
def test_every_layer_has_times_on_every_kind_and_size(name: str) -> None:
    for layer in load_example(name).layers:
        points = [(time.device_kind, time.microbatch_size) for time in layer.times]
        assert points == [(kind, size) for kind in KINDS for size in MICROBATCH_SIZES]


@pytest.mark.parametrize("name", example_names())
def test_no_time_falls_when_the_micro_batch_grows(name: str) -> None:
    for layer in load_example(name).layers:
        for kind in KINDS:
            own = [time for time in layer.times if time.device_kind == kind]
            assert [time.forward_s for time in own] == sorted(time.forward_s for time in own)
            assert [time.backward_s for time in own] == sorted(time.backward_s for time in own)


@pytest.mark.parametrize("name", example_names())
def test_a_newer_gpu_is_never_slower(name: str) -> None:
    times = [step_s(load_example(name), kind, 32) for kind in KINDS]
    assert times == sorted(times, reverse=True)


def test_resnet50_has_its_residual_edges() -> None:
    profile = load_example("resnet50")
    sources: dict[str, set[str]] = {}
    for edge in profile.edges or ():
        sources.setdefault(edge.target, set()).add(edge.source)
    assert sources["layer1.0.add"] == {"layer1.0.bn3", "layer1.0.downsample.1"}
    assert sources["layer1.1.add"] == {"layer1.1.bn3", "layer1.0.relu3"}
    assert sum(target.endswith(".add") for target in sources) == 16


def test_gnmt8_has_attention_and_residual_edges() -> None:
    edges = {(edge.source, edge.target, edge.tensor) for edge in load_example("gnmt8").edges or ()}
    assert ("encoder.add4", "decoder.lstm1", None) in edges
    assert {target for source, target, tensor in edges if tensor == "context"} == {
        "decoder.concat2", "decoder.concat3", "decoder.concat4",
    }  # fmt: skip
    assert ("encoder.lstm2", "encoder.add3", None) in edges
    assert ("decoder.lstm2", "decoder.add3", None) in edges


def test_the_untied_head_is_warned_about() -> None:
    assert any("ties its head" in warning for warning in load_example("gpt2-medium").warnings)


def test_an_unknown_example_names_a_near_one() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'vgg16'"):
        load_example("vgg-16")


def test_the_files_are_what_the_generator_makes() -> None:
    """After a change here: `python -m bapipe.examples examples`."""
    assert {path.name for path in FILES.glob("*.json")} == documents().keys() | BY_HAND
    for name, text in documents().items():
        assert (FILES / name).read_text(encoding="utf-8") == text, name
        assert len(text) < 1_000_000


def test_the_files_read_back_as_what_they_were_made_from() -> None:
    for name in example_names():
        assert load_profile(FILES / f"{name}.profile.json") == load_example(name)
    for name, cluster in clusters().items():
        assert load_cluster(FILES / f"{name}.cluster.json") == cluster
