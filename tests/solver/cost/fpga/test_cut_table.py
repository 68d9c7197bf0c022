"""The tables of all stages between two cuts, against each stage worked out by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.cost.fpga.cut_table import StageSeconds
from bapipe.cost.fpga.stage import Setting
from bapipe.cost.fpga.table import FpgaTable
from bapipe.cuts import cut_space
from bapipe.problem import Edge, Fpga, Layer, PlanRequest
from judges.boards import convolution, fpga, linear, relu, request

sizes = st.sampled_from([1, 3, 4, 5, 9])


@st.composite
def graphs(draw: st.DrawFn) -> PlanRequest:
    """Chains, and DAGs with skips and branches."""
    count = draw(st.integers(1, 6))
    layers: list[Layer] = []
    for number in range(count):
        name, stash = f"l{number}", draw(st.sampled_from([None, 0.0, 40.0]))
        kind = draw(st.integers(0, 2))
        if kind == 0:
            layers.append(linear(name, draw(sizes), draw(sizes), stash_bytes_per_sample=stash))
        elif kind == 1:
            layers.append(relu(name, draw(sizes) * 4, stash_bytes_per_sample=stash))
        else:
            layers.append(convolution(name, draw(sizes), draw(sizes), 4, 2, stash_bytes_per_sample=stash))
    pairs = [(a, b) for b in range(1, count) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    board = fpga(
        on_chip_bytes=draw(st.integers(0, 900)),
        off_chip_bandwidth_bytes_per_s=draw(st.sampled_from([1e3, 5e4])),
        buffer_bytes=0,
        dsp_slices=draw(st.sampled_from([5, 40])),
    )
    task = draw(st.sampled_from(["training", "inference"]))
    made = request(layers, board, task=task)
    edges = None if draw(st.booleans()) else tuple(Edge(source=f"l{a}", target=f"l{b}") for a, b in chosen)
    return made.model_copy(update={"profile": made.profile.model_copy(update={"edges": edges})})


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 3), st.integers(1, 3))
def test_every_stage_takes_what_it_takes_by_itself(asked: PlanRequest, samples: int, in_flight: int) -> None:
    space = cut_space(asked.profile, "any")
    device = asked.cluster.devices[0]
    forward, backward = StageSeconds(asked, space, samples).on(device, in_flight)
    alone = FpgaTable(asked, samples)
    layers = [asked.profile.layers[index].id for index in space.graph.layers]
    for inner in range(space.size):
        for outer in range(space.size):
            positions = space.stage_positions(inner, outer)
            if not positions or len(positions) != space.sizes[outer] - space.sizes[inner]:
                continue
            received = float(space.crossing_bytes_per_sample[inner]) * samples
            found = alone.stage([layers[p] for p in positions], device, received, Setting(in_flight))
            assert forward[inner, outer] == pytest.approx(sum(f for f, _, _ in found.seconds), rel=1e-12)
            assert backward[inner, outer] == pytest.approx(sum(i + w for _, i, w in found.seconds), rel=1e-12)


def test_a_stage_is_slower_than_its_layers_alone() -> None:
    """Each of two layers fits the chip, both do not: that is why cuts matter."""
    board: Fpga = fpga(on_chip_bytes=2200, off_chip_bandwidth_bytes_per_s=1e4)
    layers = [linear(name, 16, 16, stash_bytes_per_sample=0.0) for name in "ab"]
    asked = request(layers, board)
    forward, backward = StageSeconds(asked, cut_space(asked.profile, "any"), 1).on(asked.cluster.devices[0], 1)
    work = forward + backward
    assert work[0, 2] > 1.5 * (work[0, 1] + work[1, 2])
