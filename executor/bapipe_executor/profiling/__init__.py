"""Profiles of networks: measured on the device that trains, or computed from shapes for a device that is not there."""

from __future__ import annotations

from bapipe_executor.profiling.analytic import analytic_profile
from bapipe_executor.profiling.measured import measured_profile

__all__ = ["analytic_profile", "measured_profile"]
