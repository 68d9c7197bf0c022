"""Pictures of a simulated step: plain characters for terminals, one self-contained page for browsers, images for
documents."""

from __future__ import annotations

from bapipe.timeline.ascii import ascii_timeline
from bapipe.timeline.html import html_timeline
from bapipe.timeline.svg import svg_timeline

__all__ = ["ascii_timeline", "html_timeline", "svg_timeline"]
