"""The replay of lowered orders against that of plain ones: where links overlap compute, both say the same."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from bapipe.cost.cut_costs import cut_costs
from bapipe.cuts import cut_space
from bapipe.formulations.base import PartitionProblem
from bapipe.formulations.exchanges import exchanges
from bapipe.formulations.lowered_replay import LoweredReplay
from bapipe.formulations.suffix_replay import SuffixReplay, SuffixStages, Upstream
from bapipe.problem import ScheduleName
from judges.instances import even_request

PARTITIONS = 7


@pytest.mark.parametrize("schedule", ["1f1b", "1f1b-so", "gpipe"])
@pytest.mark.parametrize("training", [True, False])
def test_both_replays_agree_over_overlapped_links(schedule: ScheduleName, training: bool) -> None:
    random = Random(5)
    asked = even_request(5, 6, task="training" if training else "inference")
    costs = cut_costs(asked, cut_space(asked.profile, "any"), 1)
    for stages in range(1, 6):
        problem = PartitionProblem(costs, schedule, 6, stages, "none")
        plain, lowered = SuffixReplay(schedule, stages, 6, training), LoweredReplay(problem)
        for count in range(1, stages + 1):
            given = SuffixStages(
                *([_times(random) for _ in range(count)] for _ in range(3)), [np.ones(PARTITIONS)] * count
            )
            upstream = None if count == stages else _upstream(random, training)
            one, other = plain.run(given, upstream), lowered.run(given, upstream)
            assert np.array_equal(one.device_end_s, other.device_end_s)
            assert np.array_equal(one.backward_end_s, other.backward_end_s)


def _times(random: Random) -> np.ndarray:
    return np.array([random.randint(0, 24) / 8 for _ in range(PARTITIONS)])


def _upstream(random: Random, training: bool) -> Upstream:
    trips = [(6, _times(random))] if training else []
    return Upstream(_times(random), _times(random), trips)


def test_devices_stop_twice_for_each_microbatch_but_for_those_that_they_exchange() -> None:
    for m in range(1, 9):
        assert exchanges("gpipe", 0, 2, m, "fused", training=True) == 2 * m
        assert exchanges("1f1b", 0, 2, m, "ordered", training=True) == 2 * m
        assert exchanges("1f1b", 0, 2, m, "fused", training=True) == m + 1
        assert exchanges("1f1b", 0, 2, m, "fused", training=False) == m
