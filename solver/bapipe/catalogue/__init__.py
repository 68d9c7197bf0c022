"""The schedules side by side, on a pipeline of equal stages: what each costs, and by which formula."""

from __future__ import annotations

from bapipe.catalogue.entries import ENTRIES, Entry
from bapipe.catalogue.page import page
from bapipe.catalogue.rows import Row, rows
from bapipe.catalogue.setting import Setting

__all__ = ["ENTRIES", "Entry", "Row", "Setting", "page", "rows"]
