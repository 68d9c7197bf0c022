"""A plan run on several processes trains what one process trains: the same parameters, the same losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch: install bapipe[executor]")

from harness.cases import Case, representative_cases
from harness.comparison import LOSS_TOLERANCE, PARAMETER_TOLERANCE, difference
from harness.training import Network, Training

if TYPE_CHECKING:
    from harness.pool import Pool

pytestmark = pytest.mark.xdist_group("executor workers")


@pytest.mark.parametrize("case", representative_cases(), ids=str)
def test_every_schedule_trains_as_one_process_does(case: Case, pool: Pool) -> None:
    found = difference(pool, Network(case.network), case.plan(), Training(case.optimizer))
    assert found.parameters <= PARAMETER_TOLERANCE[case.optimizer]
    assert found.losses <= LOSS_TOLERANCE
