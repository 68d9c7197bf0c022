"""Which process has which stages: a rank for each device in use, in the order of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from bapipe.orders import order_numbers, seats_of
from bapipe.plan import Plan


@dataclass(frozen=True)
class Placement:
    """The ranks of a plan. `devices` are those of the ranks, `stage_ranks` the ranks of the replicas of each stage.

    Ranks follow the cluster's devices, idle ones left out, so that those of a host are neighbours.
    """

    devices: tuple[str, ...]
    stage_ranks: tuple[tuple[int, ...], ...]

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank that executes a micro-batch of a stage: k on replica k mod r."""
        ranks = self.stage_ranks[stage]
        return ranks[microbatch % len(ranks)]

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages of which a rank has a copy, in pipeline order."""
        return tuple(stage for stage, ranks in enumerate(self.stage_ranks) if rank in ranks)

    def microbatches_of(self, rank: int, stage: int, num_microbatches: int) -> range:
        """The micro-batches that a rank takes of one of its stages."""
        ranks = self.stage_ranks[stage]
        return range(ranks.index(rank), num_microbatches, len(ranks))

    def neighbours(self, num_microbatches: int) -> list[tuple[int, int]]:
        """The pairs of ranks that send to each other, the lower first, in ascending order."""
        pairs = {
            (self.rank_of(stage, k), self.rank_of(stage + 1, k))
            for stage in range(len(self.stage_ranks) - 1)
            for k in range(num_microbatches)
        }
        return sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})


def placement_of(plan: Plan) -> Placement:
    """The placement of a plan whose structure is sound."""
    numbers = sorted(order_numbers(plan))
    rank = {number: position for position, number in enumerate(numbers)}
    stage_ranks: list[list[int]] = [[] for _ in plan.stages]
    for seat in seats_of(plan):
        stage_ranks[seat.stage].append(rank[seat.order_number])
    devices = plan.request.cluster.devices
    return Placement(tuple(devices[number].id for number in numbers), tuple(map(tuple, stage_ranks)))
