"""The generators that a training script draws from without saying so: torch's on the CPU, numpy's and Python's."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class GeneratorStates(NamedTuple):
    """Where the generators are."""

    of_torch: Tensor
    of_numpy: dict[str, Any]
    of_python: tuple[Any, ...]


def generator_states() -> GeneratorStates:
    """Where they are now."""
    return GeneratorStates(torch.get_rng_state(), np.random.get_state(legacy=False), random.getstate())


def set_generators(states: GeneratorStates) -> None:
    """Puts them back to where they were."""
    torch.set_rng_state(states.of_torch)
    np.random.set_state(states.of_numpy)
    random.setstate(states.of_python)


def seed_generators(seed: int) -> None:
    """Starts all of them anew."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def drawn_outside_torch(before: GeneratorStates, after: GeneratorStates) -> bool:
    """Whether numpy's or Python's generator has moved."""
    first, second = before.of_numpy["state"], after.of_numpy["state"]
    same = first["pos"] == second["pos"] and np.array_equal(first["key"], second["key"])
    return not same or before.of_python != after.of_python
