"""The client of the BaPipe service. It needs httpx and pydantic only."""

from bapipe_client.client import Client
from bapipe_client.errors import (
    BaPipeError,
    Fault,
    InvalidInputError,
    NotFoundError,
    ServerError,
    ServiceBusyError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    SolveFailedError,
    TimeLimitError,
    UnexpectedResponseError,
)
from bapipe_client.models import PlanResource, Problem, SimulationResult, Timeline

__all__ = [
    "BaPipeError",
    "Client",
    "Fault",
    "InvalidInputError",
    "NotFoundError",
    "PlanResource",
    "Problem",
    "ServerError",
    "ServiceBusyError",
    "ServiceError",
    "ServiceTimeoutError",
    "ServiceUnreachableError",
    "SimulationResult",
    "SolveFailedError",
    "TimeLimitError",
    "Timeline",
    "UnexpectedResponseError",
]
