"""Why a plan cannot be run: everything that is wrong, before any process is started."""

from __future__ import annotations

from collections.abc import Iterator

from bapipe.constraints import named_order_faults
from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import unknown_reference
from bapipe.plan import Plan
from bapipe.schedules import FAMILIES
from bapipe.simulator import simulate
from bapipe.structure import stage_by_layer, structure_faults
from bapipe_executor.actions import actions_of
from bapipe_executor.layered_model import LayeredModel
from bapipe_executor.normalisation import updates_statistics
from bapipe_executor.stage_interface import layer_of
from bapipe_executor.wrappers import wrapper_details

UNTIMED = ("missing_split", "unsupported")
"""Faults of a simulation that are no faults of an execution: it needs no times."""


def refuse(plan: Plan, model: LayeredModel) -> None:
    """Raises InvalidInputError with every reason why `plan` cannot train `model` here; pointers are into the plan."""
    if not isinstance(model, LayeredModel):
        detail = (
            f"{type(model).__name__} has no layers with names that a plan can place; give "
            "bapipe_executor.layered(model, inputs), with the inputs of any batch"
        )
        raise InvalidInputError([Fault("wrong_type", detail, "/model")])
    faults = [*plan_faults(plan), *model_faults(plan, model)]
    if faults:
        raise InvalidInputError(faults)


def plan_faults(plan: Plan) -> list[Fault]:
    """What is wrong with the plan, whatever the model."""
    faults = [*_purpose_faults(plan), *structure_faults(plan)]
    if not faults and plan.schedule is not None:
        faults += _order_faults(plan)
        faults += named_order_faults(plan, plan.schedule) if not faults else ()
    return faults


def model_faults(plan: Plan, model: LayeredModel) -> list[Fault]:
    """What in the model does not go with the plan."""
    return [
        *_layer_faults(plan, model),
        *_edge_faults(plan, model),
        *_recomputation_faults(plan, model),
        *_wrapper_faults(model),
    ]


def _purpose_faults(plan: Plan) -> Iterator[Fault]:
    family = FAMILIES.get(plan.schedule.name) if plan.schedule is not None else None
    if family is not None and family.versions is not None:
        detail = (
            f"{family.name} updates weights without a flush and trains with old versions of them; torch workers run "
            "schedules that train what one device would"
        )
        yield Fault("unsupported", detail, "/schedule/name")
    if plan.request.task == "inference":
        detail = "an inference plan has no backward; only training plans are run"
        yield Fault("unsupported", detail, "/request/task")
    for s, stage in enumerate(plan.stages):
        if stage.forward_share is not None:
            detail = (
                "a device split into a forward and a backward engine (FBP-AS) is for the FPGA emulator; "
                "torch workers execute one operation at a time"
            )
            yield Fault("unsupported", detail, f"/stages/{s}/forward_share")


def _order_faults(plan: Plan) -> list[Fault]:
    """Duplicate, missing and misplaced operations, and orders that wait for each other."""
    try:
        simulate(plan)
    except InvalidInputError as error:
        faults = [fault for fault in error.faults if fault.code not in UNTIMED]
        if faults:
            return faults
    try:
        actions_of(plan)
    except InvalidInputError as error:
        return list(error.faults)
    return []


def _layer_faults(plan: Plan, model: LayeredModel) -> Iterator[Fault]:
    names = set(model.names)
    planned = {layer.id for layer in plan.request.profile.layers}
    for k, layer in enumerate(plan.request.profile.layers):
        yield from unknown_reference(layer.id, names, f"/request/profile/layers/{k}/id", "layer of the model")
    missing = [name for name in model.names if name not in planned]
    if missing:
        named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        detail = f"the model has layers that the profile does not: {named}; plan with a profile of this model"
        yield Fault("missing_layer", detail, "/request/profile/layers")


def _edge_faults(plan: Plan, model: LayeredModel) -> Iterator[Fault]:
    """What the model reads, which a hand-written profile may not say."""
    stages = stage_by_layer(plan)
    for layer, reads in model.reads.items():
        for read in reads:
            source = layer_of(read)
            if source in stages and layer in stages and stages[source] > stages[layer]:
                detail = (
                    f"{layer!r} in stage {stages[layer]} reads {source!r} of the later stage {stages[source]}; "
                    "data only moves to later stages"
                )
                place = plan.stages[stages[layer]].layers.index(layer)
                yield Fault("backward_edge", detail, f"/stages/{stages[layer]}/layers/{place}")


def _recomputation_faults(plan: Plan, model: LayeredModel) -> Iterator[Fault]:
    for s, stage in enumerate(plan.stages):
        for k, layer in enumerate(stage.recomputed_layers):
            if layer in model.names and updates_statistics(model.layer(layer)):
                detail = (
                    f"{layer!r} updates running statistics in its forward, and would twice when it is recomputed; "
                    "freeze them (eval(), or momentum 0), or keep its activations"
                )
                yield Fault("unsafe_recomputation", detail, f"/stages/{s}/recomputed_layers/{k}")


def _wrapper_faults(model: LayeredModel) -> Iterator[Fault]:
    for layer in model.names:
        for detail in wrapper_details(repr(layer), model.layer(layer)):
            yield Fault("unsupported", detail, "/stages")
