"""Every exception that BaPipe raises on purpose, one tree:

BaPipeError
├── InvalidInputError      the input is wrong; `faults` says everything that is, with JSON pointers
├── FormatError            a file is of no known format, or not what its format says
├── TimeLimitError         the time limit came before any plan was found
├── RunFailedError         a worker of a training run failed, and the run was ended
├── CheckpointError        a checkpoint of a training run could not be written, or read
├── DivergedError          the loss of a training run is not a number any more
└── SolverDisagreementError  two methods that must agree do not: a defect of ours, never a plan
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with an input: a stable code, a sentence, and where (RFC 6901 pointer)."""

    code: str
    detail: str
    pointer: str = ""

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: {self.detail} [{self.code}]"


def is_claim(fault: Fault) -> bool:
    """Whether a fault that `bapipe.check` finds is about what a plan declares, and not about what it does."""
    return fault.code in ("wrong_value", "wrong_bound") or fault.pointer.startswith("/prediction")


class BaPipeError(Exception):
    """The base of all errors raised by BaPipe."""


class InvalidInputError(BaPipeError, ValueError):
    """An input has faults. `faults` holds every one of them, not only the first."""

    def __init__(self, faults: list[Fault] | tuple[Fault, ...]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type[InvalidInputError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)


class FormatError(InvalidInputError):
    """A file is of no known format, or breaks the rules of its own."""


class TimeLimitError(BaPipeError):
    """The time limit came, or the search was stopped, before any plan was found: neither a plan nor a proof."""


class RunFailedError(BaPipeError):
    """A worker of a training run failed, or ended without a word. The others have been ended.

    `lasting`: it would fail the same way if it were tried again.
    """

    def __init__(self, reason: str, *, lasting: bool = False) -> None:
        self.lasting = lasting
        super().__init__(reason)


class CheckpointError(BaPipeError):
    """A checkpoint could not be written, or read. Those that are complete stay as they are."""


class DivergedError(BaPipeError):
    """The loss of a training run is not finite: its weights are of no more use. Earlier checkpoints stay."""


class SolverDisagreementError(BaPipeError):
    """Two methods that must agree do not. No plan is returned on such a result."""
