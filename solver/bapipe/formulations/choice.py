"""Which formulation is asked: the one that a request names, or the fastest that can prove."""

from __future__ import annotations

from collections.abc import Iterator

from bapipe.cost.cut_costs import sends_past_stages
from bapipe.errors import Fault
from bapipe.formulations.bottleneck import DynamicProgram
from bapipe.formulations.problem import BottleneckProblem
from bapipe.formulations.protocol import Formulation, Listener
from bapipe.graph import graph_of
from bapipe.problem import PlanRequest

FEW_CUTS = 500
"""Cuts up to which dynamic programming is quick enough to be asked for a second opinion."""

FEW_PLACES = 60
"""Layers × stages up to which a model is."""


def works_on_cuts(problem: BottleneckProblem) -> bool:
    """Whether two cuts say what the stage between them takes, as dynamic programming needs: not where tensors are sent
    past stages.
    """
    return not sends_past_stages(problem.request, problem.graph)


def formulation_for(problem: BottleneckProblem, *, log: bool = False) -> Formulation:
    """The formulation that the request names; `auto`: dynamic programming over all cuts that are allowed, where they
    are few enough to be enumerated and say what a stage takes, else CP-SAT.
    """
    name = problem.request.solver
    if name == "dp" or (name == "auto" and problem.space.complete and works_on_cuts(problem)):
        return DynamicProgram()
    if name.startswith("milp"):
        from bapipe.formulations.milp.solve import DEFAULT, Milp

        return Milp(name.partition(":")[2] or DEFAULT, log=log)
    from bapipe.formulations.cp_sat.solve import CpSat

    return CpSat(log=log)


def second_opinion(problem: BottleneckProblem, formulation: Formulation) -> Formulation | None:
    """Another formulation that can quickly say whether an optimum is one; None where none is quick."""
    if isinstance(formulation, DynamicProgram):
        return None
    if problem.space.complete and problem.space.size <= FEW_CUTS and works_on_cuts(problem):
        return DynamicProgram()
    if len(problem.graph.layers) * problem.most_stages > FEW_PLACES:
        return None
    if formulation.name == "cp-sat":
        from bapipe.formulations.milp.solve import Milp

        return Milp()
    from bapipe.formulations.cp_sat.solve import CpSat

    return CpSat()


def employ_idle_devices(problem: BottleneckProblem, listener: Listener) -> None:
    """Offers partitions into more stages than the best has, and with no larger load, as far as they are found soon."""
    from bapipe.formulations.cp_sat.idle import employ_idle_devices as employ

    employ(problem, listener)


def solver_faults(request: PlanRequest) -> Iterator[Fault]:
    """Why the solver that a request names cannot be asked."""
    if request.objective != "bottleneck":
        if request.solver not in ("auto", "dp"):
            detail = f"{request.solver} searches the bottleneck; for objective {request.objective} use auto"
            yield Fault("unsupported", detail, "/solver")
        return
    if request.solver == "dp" and sends_past_stages(request, graph_of(request.profile)):
        detail = "dp cannot say what a stage takes where tensors are sent past stages; use auto or cp-sat"
        yield Fault("unsupported", detail, "/solver")
    if request.solver.startswith("milp"):
        from bapipe.formulations.milp.solve import DEFAULT, milp_faults

        yield from milp_faults(request.solver.partition(":")[2] or DEFAULT)
