"""BaPipe: balanced pipeline partitions, schedules and proofs for training on several accelerators.

The documents below need pydantic only. `bapipe.planner.plan`, `bapipe.simulator.simulate` and `bapipe.check.check` need
the extra `solver`.
"""

from bapipe.errors import BaPipeError, Fault, FormatError, InvalidInputError, SolverDisagreementError, TimeLimitError
from bapipe.plan import Plan
from bapipe.problem import Cluster, ModelProfile, PlanRequest

__all__ = [
    "BaPipeError",
    "Cluster",
    "Fault",
    "FormatError",
    "InvalidInputError",
    "ModelProfile",
    "Plan",
    "PlanRequest",
    "SolverDisagreementError",
    "TimeLimitError",
]
