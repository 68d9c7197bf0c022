"""Factories by name become a profile, whatever kind of module they make."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from bapipe.problem import ModelProfile
from bapipe_executor.profiling.from_factories import Subject, compute, measure

SUBJECT = Subject("plain_models:encoder", name="encoder")


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])


def ignore(done: int, total: int, layer: str) -> None:
    assert done < total


def layer(profile: ModelProfile, name: str) -> tuple[int, float | None]:
    found = next(each for each in profile.layers if each.id == name)
    return found.parameter_bytes, found.forward_flops_per_sample


def test_a_module_is_cut_and_measured_or_computed_alike() -> None:
    measured = measure(SUBJECT, device="cpu", device_kind="here", microbatch_sizes=(2,), repeats=1, report=ignore)
    computed = compute(SUBJECT, kind="A100-40G", microbatch_sizes=(2,), report=ignore)

    assert [each.id for each in measured.layers] == [each.id for each in computed.layers]
    for name in ("embedding", "blocks.1.linear1", "head"):
        assert layer(measured, name) == layer(computed, name)
    assert layer(computed, "blocks.1.linear1") == (4 * 17 * 32, 2 * 6 * 16 * 32)
    assert measured.layers[-1].times[0].device_kind == "here"


def test_layers_that_are_alike_in_the_graph_cost_alike() -> None:
    computed = compute(SUBJECT, kind="A100-40G", microbatch_sizes=(2,), report=ignore)

    times = {each.id: each.times for each in computed.layers}
    assert times["blocks.0.linear1"] == times["blocks.1.linear1"]
