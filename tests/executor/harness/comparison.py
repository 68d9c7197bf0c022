"""What the executor trained, set against one process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from bapipe.plan import Plan
from harness.pool import Pool
from harness.training import Network, Outcome, Training, train_in_one_process, train_with_executor

PARAMETER_TOLERANCE = {"sgd": 1e-10, "adam": 1e-9}
LOSS_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Difference:
    """The largest absolute differences of the parameters on any rank, and of the losses."""

    parameters: float
    losses: float


def difference(pool: Pool, network: Network, plan: Plan, training: Training) -> Difference:
    """Trains as `plan` says, and in one process; both must have the same parameters in the end."""
    assert plan.schedule is not None
    ranks = len({device for stage in plan.stages for device in stage.devices})
    expected = _expected(network, plan.schedule.num_microbatches, plan.schedule.microbatch_size, training)
    answers = pool.run(train_with_executor, ranks, network, plan, training)
    held = {name for _, state in answers for name in state}
    assert held == set(expected.states[0]), held ^ set(expected.states[0])
    parameters = [
        float((tensor - expected.states[0][name]).abs().max())
        for _, state in answers
        for name, tensor in state.items()
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))
    ]
    losses = [abs(a - b) for found, _ in answers for a, b in zip(found, expected.losses, strict=True)]
    return Difference(max(parameters), max(losses))


@cache
def _expected(network: Network, num_microbatches: int, size: int, training: Training) -> Outcome:
    return train_in_one_process(network, num_microbatches, size, training)
