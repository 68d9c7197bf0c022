"""The BaPipe service: plans and simulations over HTTP.

Its parts are imported when they are asked for: every search's process imports this package, and needs none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bapipe_api.app import create_app
    from bapipe_api.settings import Settings

__all__ = ["Settings", "create_app"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from bapipe_api.app import create_app

        return create_app
    if name == "Settings":
        from bapipe_api.settings import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
