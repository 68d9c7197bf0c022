"""The example profiles under the name by which the commands know them."""

from __future__ import annotations

from bapipe.examples import example_names, load_example

__all__ = ["example_names", "load_example"]
