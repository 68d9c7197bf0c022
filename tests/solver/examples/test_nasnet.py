"""NASNet-A against published counts, and what makes it hard to cut."""

from __future__ import annotations

from functools import cache

import pytest

from bapipe.cuts import MAX_CUTS, closed_sets
from bapipe.examples.nasnet import nasnet_large
from bapipe.graph import graph_of
from bapipe.problem import ModelProfile


@cache
def profile() -> ModelProfile:
    return nasnet_large()


def sources_of(layer: str) -> set[str]:
    return {edge.source for edge in profile().edges or () if edge.target == layer}


def test_parameter_count_is_the_published_one() -> None:
    """Those that are trained: TensorFlow's Keras counts 88,949,818 with 196,668 that are not."""
    assert sum(layer.parameter_bytes for layer in profile().layers) == 4 * (88_949_818 - 196_668)


def test_operations_are_the_published_ones() -> None:
    macs = sum(layer.forward_flops_per_sample or 0.0 for layer in profile().layers) / 2
    assert macs == pytest.approx(23.8e9, rel=0.015)


def test_about_as_many_layers_as_the_published_graph() -> None:
    assert len(profile().layers) == 1233


@pytest.mark.parametrize(
    ("cell", "before", "last"),
    [
        ("cell1", "stem2.concat", "cell0.concat"),
        ("cell5", "cell3.concat", "cell4.concat"),
        ("reduction1", "cell4.concat", "cell5.concat"),
        ("cell6", "cell4.concat", "reduction1.concat"),
        ("cell7", "reduction1.concat", "cell6.concat"),
        ("cell17", "cell15.concat", "cell16.concat"),
    ],
)
def test_every_cell_reads_the_two_cells_before_it(cell: str, before: str, last: str) -> None:
    assert sources_of(f"{cell}.left.relu") == {before}
    assert sources_of(f"{cell}.right.relu") == {last}


def test_it_can_be_cut_in_more_ways_than_are_enumerated() -> None:
    assert closed_sets(graph_of(profile()), MAX_CUTS) is None
