"""Who is served next by links, network cards and memory ports: whoever comes first, or came first in another replay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from bapipe.simulator.events import Price, Resource

Claim = tuple[str, int, int]
"""A turn at a resource: ("chunk", message, chunk), ("part", number of the operation, part) or ("bucket", number, 0)."""

Granted = Mapping[Resource, Sequence[Claim]]


class Turns:
    """Who is served next: whoever comes first, or whoever came first in another replay."""

    def __init__(self, free_s: dict[Resource, float], order: Granted | None) -> None:
        self.free_s, self.order = free_s, order
        self.granted: dict[Resource, list[Claim]] = defaultdict(list)
        self.waiting: dict[Claim, tuple[Price, float, Callable[[float], None]]] = {}

    def claim(self, claim: Claim, price: Price, now_s: float, grant: Callable[[float], None]) -> None:
        """Calls `grant` with the start of the turn, at once or when those before have had theirs."""
        if self.order is None or not price.resources:
            grant(self._take(claim, price, now_s))
            return
        self.waiting[claim] = price, now_s, grant
        following = [claim]
        while following:
            coming = following.pop()
            if self._is_next(coming):
                price, now_s, grant = self.waiting.pop(coming)
                grant(self._take(coming, price, now_s))
                following += self._coming(price.resources)

    def _take(self, claim: Claim, price: Price, now_s: float) -> float:
        start_s = max(now_s, *(self.free_s[resource] for resource in price.resources)) if price.resources else now_s
        for resource in price.resources:
            self.free_s[resource] = start_s + price.seconds
            self.granted[resource].append(claim)
        return start_s

    def _coming(self, resources: Sequence[Resource]) -> Iterator[Claim]:
        """Whose turn it is now at each of the resources."""
        order = self.order or {}
        for resource in resources:
            place = len(self.granted[resource])
            yield from order[resource][place : place + 1]

    def _is_next(self, claim: Claim) -> bool:
        if claim not in self.waiting or self.order is None:
            return False
        resources = self.waiting[claim][0].resources
        return all(self.order[each][len(self.granted[each])] == claim for each in resources)
