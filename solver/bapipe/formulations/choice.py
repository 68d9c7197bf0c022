"""Which formulation is asked: the one that a request names, or the fastest that can prove."""

from __future__ import annotations

from collections.abc import Iterator

from bapipe.errors import Fault
from bapipe.formulations.bottleneck import DynamicProgram
from bapipe.formulations.problem import BottleneckProblem
from bapipe.formulations.protocol import Formulation
from bapipe.problem import PlanRequest

FEW_CUTS = 500
"""Cuts up to which dynamic programming is quick enough to be asked for a second opinion."""

FEW_PLACES = 60
"""Layers × stages up to which a model is."""


def works_on_cuts(request: PlanRequest) -> bool:
    """Whether dynamic programming over cuts can say what a stage takes: one kind of device, and no side constraint that
    depends on more than two cuts.
    """
    same = len({(device.kind, device.speed) for device in request.cluster.devices}) == 1
    pinned = any(pin.device is not None for pin in request.profile.pins)
    direct = request.cluster.skip_tensors == "direct"
    return same and not pinned and not direct and not request.profile.tied_parameters


def formulation_for(problem: BottleneckProblem, *, log: bool = False) -> Formulation:
    """The formulation that the request names; `auto`: dynamic programming over all cuts that are allowed, where they
    are few enough to be enumerated and say what a stage takes, else CP-SAT.
    """
    name = problem.request.solver
    if name == "dp" or (name == "auto" and problem.space.complete and works_on_cuts(problem.request)):
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
    if problem.space.complete and problem.space.size <= FEW_CUTS and works_on_cuts(problem.request):
        return DynamicProgram()
    if len(problem.graph.layers) * problem.most_stages > FEW_PLACES:
        return None
    if formulation.name == "cp-sat":
        from bapipe.formulations.milp.solve import Milp

        return Milp()
    from bapipe.formulations.cp_sat.solve import CpSat

    return CpSat()


def solver_faults(request: PlanRequest) -> Iterator[Fault]:
    """Why the solver that a request names cannot be asked."""
    if request.objective != "bottleneck":
        if request.solver not in ("auto", "dp"):
            detail = f"{request.solver} searches the bottleneck; for objective {request.objective} use auto"
            yield Fault("unsupported", detail, "/solver")
        return
    if request.solver == "dp" and not works_on_cuts(request):
        detail = (
            "dp takes no pins to devices, no tied parameters, no tensors sent past a stage and one kind of device; "
            "use auto or cp-sat"
        )
        yield Fault("unsupported", detail, "/solver")
    if request.solver.startswith("milp"):
        from bapipe.formulations.milp.solve import DEFAULT, milp_faults

        yield from milp_faults(request.solver.partition(":")[2] or DEFAULT)
