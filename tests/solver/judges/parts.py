"""Parts of operations and chunks of tensors as one graph of what awaits what, and the longest way through it.

Shares no code with the replay that it judges: no clock, no events. Only for jobs whose every link direction is fed by
one engine and keeps nothing else busy, without exchanges, reductions and memory ports: who is first is settled there.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bapipe.simulator.events import Job

Node = tuple[Hashable, ...]


def is_settled(job: Job) -> bool:
    """Whether no two engines ever compete for anything."""
    feeders: dict[Any, set[int]] = defaultdict(set)
    for message, price in zip(job.lowered.messages, job.prices, strict=True):
        if message.manner in ("fused", "ordered") or len(price.resources) > 1:
            return False
        for way in price.resources:
            feeders[way].add(message.source)
    return not job.buckets and not any(job.port_s.values()) and all(len(each) == 1 for each in feeders.values())


@dataclass
class Parts:
    """A job, how many parts its operations have, how many chunks FIFOs hold, and how often chunks are sent."""

    job: Job
    parts: Mapping[Any, int]
    depths: Mapping[Any, int]
    tries: Any
    after: dict[Node, list[Node]] = field(default_factory=lambda: defaultdict(list))
    takes: dict[Node, float] = field(default_factory=dict)

    def ends(self) -> dict[Any, float]:
        """When each operation ends; those that wait for each other are left out."""
        for order in self.job.seconds:
            nodes = [node for operation, seconds in order.items() for node in self._made(operation, seconds)]
            self._chain(nodes)
        for operation, before in self.job.earlier.items():
            self.after[self._last(before)].append(("part", operation, 0))
        self._read_messages()
        for way, queue in self._queues().items():
            self._pass_in_turn(queue, self.depths.get(way))
        end = self._longest()
        operations = [operation for order in self.job.seconds for operation in order]
        return {operation: end[self._last(operation)] for operation in operations if self._last(operation) in end}

    def _made(self, operation: Any, seconds: float) -> Iterator[Node]:
        count = self.parts.get(operation, 1)
        for part in range(count):
            self.takes["part", operation, part] = seconds / count
            yield "part", operation, part

    def _chain(self, nodes: list[Node]) -> None:
        for before, node in pairwise(nodes):
            self.after[before].append(node)

    def _last(self, operation: Any) -> Node:
        return "part", operation, self.parts.get(operation, 1) - 1

    def _read_messages(self) -> None:
        """A part reads its share of a message; what is free is there with the last part that makes it."""
        for number, (message, price) in enumerate(zip(self.job.lowered.messages, self.job.prices, strict=True)):
            if message.manner == "free":
                self.after[self._last(message.made_by)].append(("part", message.read_by, 0))
                continue
            readers = self.parts.get(message.read_by, 1)
            for chunk in range(price.chunks):
                self.takes["chunk", number, chunk] = price.seconds / price.chunks * self.tries(number, chunk)
                first = next(part for part in range(readers) if (part + 1) * price.chunks > chunk * readers)
                self.after["chunk", number, chunk].append(("part", message.read_by, first))

    def _queues(self) -> dict[Any, list[tuple[Node, Node]]]:
        """Of each way, (part, chunk that it makes) in the order in which they are made."""
        queues: dict[Any, list[tuple[Node, Node]]] = defaultdict(list)
        sent = defaultdict(list)
        for number, (message, price) in enumerate(zip(self.job.lowered.messages, self.job.prices, strict=True)):
            if message.manner != "free":
                sent[message.made_by].append((number, price))
        for operation in (operation for order in self.job.seconds for operation in order):
            count = self.parts.get(operation, 1)
            for part in range(count):
                for number, price in sent[operation]:
                    way = price.resources[0] if price.resources else number
                    for chunk in range(part * price.chunks // count, (part + 1) * price.chunks // count):
                        queues[way].append((("part", operation, part), ("chunk", number, chunk)))
        return queues

    def _pass_in_turn(self, queue: list[tuple[Node, Node]], depth: int | None) -> None:
        """Chunks follow each other; a chunk is made when the one so many before it has left."""
        self._chain([chunk for _, chunk in queue])
        for place, (maker, chunk) in enumerate(queue):
            self.after[maker].append(chunk)
            if depth is not None and place >= depth:
                self.after[queue[place - depth][1]].append(maker)

    def _longest(self) -> dict[Node, float]:
        awaited = dict.fromkeys(self.takes, 0)
        for following in (node for nodes in self.after.values() for node in nodes):
            awaited[following] += 1
        start, end = dict.fromkeys(self.takes, 0.0), {}
        ready = deque(node for node, count in awaited.items() if not count)
        while ready:
            node = ready.popleft()
            end[node] = start[node] + self.takes[node]
            for following in self.after[node]:
                start[following] = max(start[following], end[node])
                awaited[following] -= 1
                if not awaited[following]:
                    ready.append(following)
        return end
