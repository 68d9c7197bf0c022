"""Finds the layers of a network that was not written as a `LayeredModel`, without changing what it computes.

`layered` exports the network and cuts the exported graph where few tensors are live. A network that cannot be exported,
as one that decides by the values of its data, is taken as its children, if they are called once each with nothing in
between.
"""

from __future__ import annotations

from bapipe_executor.cut_finder.finder import layered

__all__ = ["layered"]
