"""Full-size profiles computed from layer shapes and the roofline of a device: no model is run, nothing is downloaded.

>>> profile = load_example("vgg16")

`python -m bapipe.examples DIRECTORY` writes them, and the example clusters, as JSON. `bapipe.examples.nasnet` makes one
that is too large for a file: 1,233 layers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from pydantic import BaseModel, ConfigDict

from bapipe.errors import InvalidInputError
from bapipe.examples.gnmt8 import gnmt8
from bapipe.examples.gpt2 import gpt2_medium
from bapipe.examples.resnet50 import resnet50
from bapipe.examples.vgg16 import vgg16
from bapipe.faults import unknown_reference
from bapipe.problem import ModelProfile

__all__ = ["ExampleSummary", "example_names", "example_summaries", "load_example"]

EXAMPLES: dict[str, Callable[[], ModelProfile]] = {
    "vgg16": vgg16,
    "resnet50": resnet50,
    "gnmt8": gnmt8,
    "gpt2-medium": gpt2_medium,
}


def example_names() -> tuple[str, ...]:
    """The names that `load_example` takes."""
    return tuple(EXAMPLES)


@lru_cache
def load_example(name: str) -> ModelProfile:
    """The example profile `name`, with times on every GPU of the presets at micro-batch sizes of 1 to 128.

    Raises:
        InvalidInputError: there is no such example.
    """
    faults = unknown_reference(name, EXAMPLES, "", "example")
    if faults:
        raise InvalidInputError(faults)
    return EXAMPLES[name]()


class ExampleSummary(BaseModel):
    """What an example is, in brief: how many layers and parameters it has, and where its figures come from."""

    model_config = ConfigDict(frozen=True)

    layers: int
    parameters: int
    parameter_bytes: int
    source: str


def example_summaries() -> dict[str, ExampleSummary]:
    """Every example in brief, by name."""
    return {name: _summary(load_example(name)) for name in EXAMPLES}


def _summary(profile: ModelProfile) -> ExampleSummary:
    size = sum(layer.parameter_bytes for layer in profile.layers)
    return ExampleSummary(
        layers=len(profile.layers),
        parameters=size // profile.bytes_per_parameter,
        parameter_bytes=size,
        source=profile.source,
    )
