"""The client of the BaPipe service. It needs httpx and pydantic only."""

from bapipe_client.async_client import AsyncClient, AsyncJob
from bapipe_client.client import Client, Job
from bapipe_client.errors import (
    BaPipeError,
    Fault,
    InvalidInputError,
    NotAllowedError,
    NotFoundError,
    ServerError,
    ServiceBusyError,
    ServiceError,
    ServiceTimeoutError,
    ServiceUnreachableError,
    SolveFailedError,
    StillRunningError,
    TimeLimitError,
    UnexpectedResponseError,
)
from bapipe_client.models import (
    PlanResource,
    PlanSummary,
    Problem,
    ProgressEvent,
    SimulationResult,
    Timeline,
    Validation,
)

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "BaPipeError",
    "Client",
    "Fault",
    "InvalidInputError",
    "Job",
    "NotAllowedError",
    "NotFoundError",
    "PlanResource",
    "PlanSummary",
    "Problem",
    "ProgressEvent",
    "ServerError",
    "ServiceBusyError",
    "ServiceError",
    "ServiceTimeoutError",
    "ServiceUnreachableError",
    "SimulationResult",
    "SolveFailedError",
    "StillRunningError",
    "TimeLimitError",
    "Timeline",
    "UnexpectedResponseError",
    "Validation",
]
