"""Work that is done in this process, or in a child of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel

from bapipe.emulation import EmulationOptions, EmulationReport
from bapipe.errors import TimeLimitError
from bapipe.plan import Plan
from bapipe.problem import ModelProfile, PlanRequest
from bapipe_cli.backend import Form, Presets, ProfileText, Simulated
from bapipe_cli.inputs import read_feasible_plan
from bapipe_cli.interrupt import Interrupt
from bapipe_cli.progress import search_progress

if TYPE_CHECKING:
    from bapipe.simulator import Simulation


class Here:
    """A `Backend` without a service."""

    def plan(self, request: PlanRequest, title: str, *, solver_log: bool = False) -> tuple[Plan, bool]:
        from bapipe.planner import plan_isolated

        with Interrupt() as interrupt, search_progress(title, request.time_limit_s) as report:
            try:
                answer = plan_isolated(
                    request, on_progress=report, should_stop=lambda: interrupt.requested, solver_log=solver_log
                )
            except TimeLimitError:
                if interrupt.requested:
                    raise KeyboardInterrupt from None
                raise
        return answer, interrupt.requested

    def simulate(self, plan: Plan, wanted: Collection[Form]) -> Simulated:
        from bapipe.check import check
        from bapipe.simulator import drawn, simulate
        from bapipe.timeline import html_timeline
        from bapipe.trace import chrome_trace

        simulation = simulate(plan)
        writers: dict[Form, Callable[[Plan, Simulation], str]] = {"html": html_timeline, "trace": chrome_trace}
        return Simulated(
            simulation.prediction(plan.request),
            check(plan, simulation),
            drawn(plan, simulation) if "picture" in wanted else None,
            {form: write(plan, simulation) for form, write in writers.items() if form in wanted},
        )

    def emulate(self, plan: Plan, options: EmulationOptions, *, trace: bool) -> tuple[EmulationReport, str | None]:
        from bapipe.emulation.emulate import emulate
        from bapipe.trace import chrome_trace

        emulated = emulate(plan, options)
        return emulated.report, chrome_trace(plan, emulated.simulation) if trace else None

    def validate(self, request: PlanRequest) -> tuple[str, ...]:
        from bapipe.planner import validate

        return validate(request)

    def import_profile(self, source: ProfileText) -> ModelProfile:
        from bapipe.formats import parse_profile

        return parse_profile(source.text, format=source.form, profile_batch=source.profile_batch, name=source.name)

    def export(self, plan: str, form: str) -> str:
        subject = read_feasible_plan(plan, "export")
        from bapipe.exports import EXPORTS

        return EXPORTS[form].write(subject)

    def presets(self) -> Presets:
        from bapipe.examples import example_summaries
        from bapipe.presets import CLUSTER_SPECS, device_kinds, links

        return Presets(device_kinds(), links(), example_summaries(), CLUSTER_SPECS)

    def preset_readers(self) -> Mapping[str, Callable[[], BaseModel]]:
        from bapipe.examples import example_names, load_example
        from bapipe.presets import ALIASES, CLUSTER_SPECS, cluster_from_spec, device_kinds, links

        return {
            **{kind: partial(device_kinds().__getitem__, kind) for kind in device_kinds()},
            **{alias: partial(device_kinds().__getitem__, kind) for alias, kind in ALIASES.items()},
            **{link: partial(links().__getitem__, link) for link in links()},
            **{example: partial(load_example, example) for example in example_names()},
            **{cluster: partial(cluster_from_spec, spec) for cluster, spec in CLUSTER_SPECS.items()},
        }
