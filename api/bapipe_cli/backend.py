"""Where the work of a command is done: here, or on a service. This is the only place that decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import BaseModel

from bapipe.emulation import EmulationOptions, EmulationReport
from bapipe.errors import Fault
from bapipe.examples import ExampleSummary
from bapipe.plan import Plan, Prediction
from bapipe.problem import DeviceKind, Link, ModelProfile, PlanRequest
from bapipe.timeline.picture import Picture

Form = Literal["picture", "html", "trace"]
"""What a simulation is shown as, beside its figures."""


@dataclass(frozen=True)
class Simulated:
    """A plan's figures, what is wrong with it, and as far as it was wanted, its picture and the files of its step."""

    prediction: Prediction
    faults: Sequence[Fault]
    picture: Picture | None = None
    files: Mapping[Form, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfileText:
    """What a file with a profile holds; `name`: what the model is called where the file does not say."""

    text: str
    name: str
    form: str | None
    profile_batch: int | None


@dataclass(frozen=True)
class Presets:
    """What can be named: device kinds, links and example profiles by name, and the spec of each example cluster."""

    device_kinds: Mapping[str, DeviceKind]
    links: Mapping[str, Link]
    profiles: Mapping[str, ExampleSummary]
    clusters: Mapping[str, str]


class Backend(Protocol):
    """Does what commands ask for, the same wherever it is done.

    Its methods raise `InvalidInputError` with every fault of the input, `TimeLimitError`, `NothingFitsError`,
    `ServerError` and, on Ctrl-C, `KeyboardInterrupt`.
    """

    def plan(self, request: PlanRequest, title: str, *, solver_log: bool = False) -> tuple[Plan, bool]:
        """The plan, and whether Ctrl-C cut the search short; `title` stands before its progress."""

    def simulate(self, plan: Plan, wanted: Collection[Form]) -> Simulated:
        """What `plan` costs, with what is `wanted` of it."""

    def emulate(self, plan: Plan, options: EmulationOptions, *, trace: bool) -> tuple[EmulationReport, str | None]:
        """A step of `plan` on its FPGAs and, if wanted, its trace."""

    def validate(self, request: PlanRequest) -> tuple[str, ...]:
        """What a plan for `request` would assume."""

    def import_profile(self, source: ProfileText) -> ModelProfile:
        """The profile that a file holds."""

    def export(self, plan: str, form: str) -> str:
        """A plan, by its file here or its id on a service, in one of `bapipe.exports`."""

    def presets(self) -> Presets:
        """What can be named."""

    def preset_readers(self) -> Mapping[str, Callable[[], BaseModel]]:
        """What reads each thing that can be named, in full."""


def backend(server: str | None) -> Backend:
    """The service at the address `server`; without one, this process.

    Raises:
        typer.BadParameter: `server` is no address.
    """
    if server is None:
        from bapipe_cli.here import Here

        return Here()
    from bapipe_cli.there import There

    return There(server)
