"""Who talks to whom, when all talk at once."""

from __future__ import annotations

Pair = tuple[int, int]


def all_pairs(count: int) -> list[Pair]:
    """Every pair of ranks, the lower one first."""
    return [(low, high) for low in range(count) for high in range(low + 1, count)]


def rounds(count: int) -> list[list[Pair]]:
    """Rounds in which every rank is in one pair at most, such that every pair meets once (the circle method)."""
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    half = len(seats) // 2
    found = []
    for _ in range(len(seats) - 1):
        meetings = zip(seats[:half], reversed(seats[half:]), strict=True)
        found.append(
            [(min(one, other), max(one, other)) for one, other in meetings if one is not None and other is not None]
        )
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return found
