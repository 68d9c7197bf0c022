"""How fast the links between workers are, measured by the workers: run on every host of a cluster through torchrun."""

from __future__ import annotations
