"""Every stage fits its device, whichever schedule, micro-batch size and number of stages are chosen."""

from __future__ import annotations

from collections import defaultdict

from bapipe.candidates import Candidate
from bapipe.cost.memory import num_buffers, usable_bytes
from bapipe.formulations.milp.program import Program, Sum
from bapipe.formulations.milp.traffic import Traffic


def limit_memory(program: Program, traffic: Traffic) -> None:
    """static + K · stash + buffers + copies + work space <= limit, for candidates that keep K in flight; in limits."""
    for stage in program.stages:
        limit = program.problem.limit_bytes(stage)
        if limit == float("inf"):
            continue
        unit = max(limit, 1.0)
        extra = _space_and_copies(program, stage)
        for (size, in_flight), candidates in _situations(program, stage).items():
            total = Sum()
            for part in (extra, _stage_bytes(program, traffic, size, stage, in_flight)):
                total.add(part, 1 / unit)
            if total.most * unit > usable_bytes(limit):
                program.require_for(candidates, total, {}, usable_bytes(limit) / unit)


def _situations(program: Program, stage: int) -> dict[tuple[int, int], list[Candidate]]:
    """Candidates with that stage by (micro-batch size, micro-batches in flight)."""
    found: dict[tuple[int, int], list[Candidate]] = defaultdict(list)
    for candidate in program.chosen:
        if candidate.num_devices > stage:
            found[candidate.microbatch_size, program.problem.in_flight(candidate, stage)].append(candidate)
    return found


def _stage_bytes(program: Program, traffic: Traffic, size: int, stage: int, in_flight: int) -> Sum:
    """Static bytes, stashes and buffers."""
    problem, total = program.problem, Sum()
    costs, policy = problem.costs(size), problem.request.cluster.receive_buffers
    for layer, (static, stash) in enumerate(zip(costs.static_bytes, costs.stash_bytes, strict=True)):
        total.add(program.held(layer, stage), float(static + in_flight * stash))
    received, others = num_buffers(policy, in_flight, problem.num_microbatches(size))
    for way, carried in traffic.carried.items():
        if stage in way:
            buffers = (received if way[1] == stage else others) + others * problem.training
            for tensor, crosses in carried.items():
                total.add(crosses, buffers * float(costs.tensor_bytes[tensor]))
    return total


def _space_and_copies(program: Program, stage: int) -> Sum:
    """The largest work space of a stage's layers, and a copy of parameters that any of them shares."""
    costs, total = program.problem.costs(next(iter(program.problem.by_size))), Sum()
    largest = float(costs.workspace_bytes.max())
    if largest:
        space = program.variable(0, 1)
        for layer, amount in enumerate(costs.workspace_bytes):
            part = Sum()
            part.add(program.held(layer, stage), float(amount) / largest)
            program.at_least(space, part)
        total.add(Sum({space: 1.0}, most=1.0), largest)
    for tied in costs.tied:
        copy = program.variable(0, 1)
        for layer in tied.layers:
            program.at_least(copy, program.held(layer, stage))
        total.add(Sum({copy: 1.0}, most=1.0), tied.static_bytes)
    return total
