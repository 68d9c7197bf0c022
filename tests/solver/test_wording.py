"""A plan in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from bapipe.plan import Schedule, Stage
from bapipe.wording import arrangement_text


def stage(index: int, *devices: str) -> Stage:
    figures: Any = dict.fromkeys(("forward_s", "backward_s", "load_s", "peak_memory_bytes"), 0.0)
    return Stage(index=index, layers=(f"l{index}",), devices=devices, memory_limit_bytes=None, **figures)


@pytest.mark.parametrize(
    ("name", "count", "stages", "text"),
    [
        ("1f1b", 16, (stage(0, "a"), stage(1, "b")), "1f1b over 2 stages, 16 micro-batches of 2 samples"),
        ("gpipe", 1, (stage(0, "a"),), "one device, 1 micro-batch of 2 samples"),
        ("data-parallel", 4, (stage(0, "a", "b"),), "data-parallel on 2 devices, 2 micro-batches of 2 samples each"),
        ("data-parallel", 2, (stage(0, "a", "b"),), "data-parallel on 2 devices, 1 micro-batch of 2 samples each"),
        (
            "data-parallel",
            3,
            (stage(0, "a", "b"),),
            "data-parallel on 2 devices, 1 or 2 micro-batches of 2 samples each",
        ),
    ],
)
def test_what_runs_where(name: Any, count: int, stages: tuple[Stage, ...], text: str) -> None:
    schedule = Schedule(name=name, num_microbatches=count, microbatch_size=2, orders=())

    assert arrangement_text(schedule, stages) == text
