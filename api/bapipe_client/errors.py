"""Every error that the client raises, one tree, whose root is that of `bapipe.errors`:

BaPipeError
├── InvalidInputError           the input is wrong; `faults` says everything that is, as the Python API does
├── TimeLimitError              the time limit came before any plan was found
└── ServiceError                there is no answer, for a reason that is not the input's
    ├── ServiceUnreachableError     no connection, or it broke
    │   └── ServiceTimeoutError     the service did not answer in time
    ├── ServiceBusyError            it takes no more work now, and the retries are used up; `retry_after_s`
    ├── NotFoundError               it has nothing under this id
    ├── NotAllowedError             the key is missing, wrong, or does not allow this; `status`
    ├── StillRunningError           the job did not end within the time that was given to wait for it; `job_id`
    ├── ServerError                 it met an error of its own; `status`
    ├── JobFailedError              the job failed or was cancelled; `job_id`, `state`, `faults`
    └── UnexpectedResponseError     it is no BaPipe service, or of a version that this client does not know
"""

from __future__ import annotations

from bapipe.errors import BaPipeError, Fault, InvalidInputError, TimeLimitError

__all__ = [
    "BaPipeError",
    "Fault",
    "InvalidInputError",
    "JobFailedError",
    "NotAllowedError",
    "NotFoundError",
    "ServerError",
    "ServiceBusyError",
    "ServiceError",
    "ServiceTimeoutError",
    "ServiceUnreachableError",
    "StillRunningError",
    "TimeLimitError",
    "UnexpectedResponseError",
]


class ServiceError(BaPipeError):
    """The base of what goes wrong between the client and the service."""


class ServiceUnreachableError(ServiceError):
    """There is no connection to the service, or it broke. `may_have_arrived`: the request may have been carried out."""

    def __init__(self, message: str, *, may_have_arrived: bool) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


class ServiceTimeoutError(ServiceUnreachableError):
    """The service did not answer in time."""


class ServiceBusyError(ServiceError):
    """The service takes no more work now. `retry_after_s` is what it asked to wait, None when it did not say."""

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotFoundError(ServiceError):
    """The service has nothing under this id."""


class NotAllowedError(ServiceError):
    """The service wants a key, or another one: HTTP `status` 401 or 403."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class StillRunningError(ServiceError):
    """The job, a `kind` such as a plan, did not end within the time that was given to wait for it. It goes on."""

    def __init__(self, kind: str, job_id: str, state: str, waited_s: float) -> None:
        super().__init__(f"{kind} {job_id} is still {state} after {waited_s:g} s; it goes on")
        self.kind = kind
        self.job_id = job_id
        self.state = state


class ServerError(ServiceError):
    """The service met an error of its own, with this HTTP `status`."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class JobFailedError(ServiceError):
    """The job, a `kind` such as a plan, ended without an answer."""

    def __init__(self, kind: str, job_id: str, state: str, faults: tuple[Fault, ...]) -> None:
        reason = "; ".join(fault.detail for fault in faults) or "the service does not say why"
        super().__init__(f"{kind} {job_id} {state}: {reason}")
        self.kind = kind
        self.job_id = job_id
        self.state = state
        self.faults = faults


class UnexpectedResponseError(ServiceError):
    """The answer is not one that a BaPipe service gives."""
