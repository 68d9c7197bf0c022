"""Connections between ranks, made before the first step: where they are made on demand, both ends stop for them."""

from __future__ import annotations

import torch
import torch.distributed as dist

from bapipe_executor.placement import Placement


def connect(placement: Placement, rank: int, num_microbatches: int, device: torch.device) -> None:
    """Exchanges a word with every rank that this one will send to. All ranks go through the pairs in one order."""
    word = torch.zeros(1, device=device)
    for low, high in placement.neighbours(num_microbatches):
        if rank == low:
            dist.send(word, high)
            dist.recv(word, high)
        elif rank == high:
            dist.recv(word, low)
            dist.send(word, low)
