"""The BaPipe service: plans and simulations over HTTP."""

from bapipe_api.app import create_app
from bapipe_api.settings import Settings

__all__ = ["Settings", "create_app"]
