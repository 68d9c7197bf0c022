"""Over prefixes of an order, what is looked up in a table is what a loop over the layers finds."""

from __future__ import annotations

import numpy as np
import pytest

from bapipe.cuts import CutSpace, cut_space
from bapipe.problem import Layer, ModelProfile


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 33])
def test_the_largest_between_two_prefixes_is_that_of_their_layers(count: int) -> None:
    space = cut_space(ModelProfile(name="m", layers=tuple(Layer(id=str(n)) for n in range(count))), "topological-order")
    values = np.random.default_rng(count).integers(0, 5, count).astype(float)
    cuts = np.arange(space.size)

    found = space.largest(values)(cuts[:, None], cuts[None, :])

    assert np.array_equal(found, CutSpace.largest(space, values)(cuts[:, None], cuts[None, :]))
    for inner in cuts:
        for outer in cuts:
            assert found[inner, outer] == max(values[inner:outer], default=0.0)
