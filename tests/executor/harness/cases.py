"""The grid of cases: networks, schedules, layouts, optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from bapipe.plan import Plan
from harness import orders
from harness.plans import cut, make_plan
from harness.training import Network

NETWORKS = ("vgg16", "resnet50", "gpt2", "gnmt", "unet")
OPTIMIZERS = ("sgd", "adam")
NAMED = ("gpipe", "1f1b", "1f1b-so")
GIVEN = ("interleaved", "interleaved-zb", "zb-v", "greedy", "greedy-split")
LAYOUTS: dict[str, orders.Layout] = {
    "1": ((0,),),
    "2": ((0,), (1,)),
    "4": ((0,), (1,), (2,), (3,)),
    "2x2": ((0, 2), (1, 3)),
    "3+1": ((0, 1, 2), (3,)),
    "1+2+1": ((0,), (1, 2), (3,)),
    "4 replicas": ((0, 1, 2, 3),),
}
UNEVEN = (2, 3, 1, 4, 1, 2, 1, 1)
"""How many layers the stages have beside each other."""
NUM_MICROBATCHES = 8
SIZE = 2


@dataclass(frozen=True)
class Case:
    """A tiny network, trained by a schedule on a layout of ranks."""

    network: str
    schedule: str
    layout: str
    optimizer: str

    def __str__(self) -> str:
        return f"{self.network}, {self.schedule} on {self.layout}, {self.optimizer}"

    @property
    def ranks(self) -> int:
        return 1 + max(rank for ranks in LAYOUTS[self.layout] for rank in ranks)

    def plan(self) -> Plan:
        model = Network(self.network).model()
        layout, rows = self.placed()
        return make_plan(
            model,
            cut(model, UNEVEN[: len(layout)]),
            layout,
            rows,
            NUM_MICROBATCHES,
            microbatch_size=SIZE,
            name=self.schedule if self.schedule in NAMED and self.layout in ("1", "2", "4") else "custom",
        )

    def placed(self) -> tuple[orders.Layout, orders.Orders]:
        """The ranks of the stages, and the order of each rank. Given orders: two stages a rank, in a loop or a V."""
        layout = LAYOUTS[self.layout]
        if self.schedule in NAMED:
            return layout, orders.one_stage_a_rank(self.schedule, layout, NUM_MICROBATCHES)
        of_torch = {
            "interleaved": orders.interleaved,
            "interleaved-zb": orders.interleaved_zero_bubble,
            "zb-v": orders.zb_v,
        }
        if self.schedule in of_torch and self.layout in ("1", "2", "4"):
            rows = of_torch[self.schedule](self.ranks, NUM_MICROBATCHES)
            return orders.layout_of(rows), rows
        twice = (*layout, *(reversed(layout) if self.schedule == "zb-v" else layout))
        split = self.schedule in ("interleaved-zb", "zb-v", "greedy-split")
        return twice, orders.greedy(twice, NUM_MICROBATCHES, split=split)


def all_cases() -> list[Case]:
    """Every combination."""
    return [Case(*case) for case in product(NETWORKS, (*NAMED, *GIVEN), LAYOUTS, OPTIMIZERS)]


def representative_cases() -> list[Case]:
    """A few of them, in which every network meets every schedule, and every layout and optimizer occurs with each."""
    pairs = list(product(NETWORKS, (*NAMED, *GIVEN)))
    layouts = ("4", "3+1", "2x2", "1+2+1", "2", "4 replicas", "1")
    return [
        Case(network, schedule, layouts[number % len(layouts)], OPTIMIZERS[number % 2])
        for number, (network, schedule) in enumerate(pairs)
    ]
