"""Times that the ranks of one machine share: of transfers that arrive, links that are free, exchanges that are met."""

from __future__ import annotations

from pathlib import Path

import torch


class Board:
    """Numbers in a file that every rank has in its memory, zero at first. Times are those of `time.monotonic`.

    `arrival_s[m]` is when message m arrives, `free_s[r]` when resource r is free, `present_s[x, side]` when one of two
    ranks came to exchange x, and `present_step[x, side]` in which step that was, counted from 1.
    """

    def __init__(self, path: Path, messages: int, resources: int, exchanges: int) -> None:
        sizes = [messages, resources, 2 * exchanges, 2 * exchanges]
        total = max(1, sum(sizes))
        numbers = torch.from_file(str(path), shared=True, size=total, dtype=torch.float64)
        arrival, free, present, step = torch.split(numbers[: sum(sizes)], sizes)
        self.arrival_s, self.free_s = arrival, free
        self.present_s, self.present_step = present.view(-1, 2), step.view(-1, 2)
