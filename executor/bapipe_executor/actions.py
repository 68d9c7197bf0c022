"""From the orders of a plan to what each rank does: its operations, with a send or a receive for everything that moves.

The actions are strings in the language of torch's pipeline schedules: `2F0`, `2SEND_F0`, `3RECV_F0`. A send follows the
operation that made the tensor; the receiver posts its receive at about the same time, so that the transfer starts at
once. All sends and receives stand in one order, which every pair of ranks shares: with receives in another order than
sends, tensors would be mixed up, and where a channel holds one transfer at a time, two ranks could wait for each other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from bapipe.errors import Fault, InvalidInputError
from bapipe.lowering import Lowered, Operation, Route, lower
from bapipe.orders import order_numbers, read_orders
from bapipe.plan import Plan, Stage

SHARES = {"F": (1.0, 0.0), "B": (0.0, 1.0), "I": (0.0, 0.5), "W": (0.0, 0.5), "R": (1.0, 0.0)}
"""The parts of a stage's forward and backward that an operation is taken to last."""


def actions_of(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """The actions of each rank.

    Raises:
        InvalidInputError: every fault of the orders; `deadlock` when they wait for each other.
    """
    schedule = plan.schedule
    if schedule is None:
        raise InvalidInputError([Fault("nothing_to_execute", f"the plan is {plan.status}", "/schedule")])
    orders, faults = read_orders(plan, schedule)
    if faults:
        raise InvalidInputError(faults)
    chain = [Route(stage, stage + 1, 0.0) for stage in range(len(plan.stages) - 1)]
    lowered = lower(orders, chain, lambda source, target, size_bytes: "overlapped")
    numbers = order_numbers(plan)
    rank_of = [sorted(numbers).index(number) for number in numbers]
    place = {operation: rank_of[position] for position, order in enumerate(orders) for operation in order}
    actions: list[list[str]] = [[] for _ in numbers]
    for operation in _by_end(orders, lowered, plan.stages):
        actions[place[operation]].append(str(operation))
        for message in (lowered.messages[number] for number in lowered.sends.get(operation, ())):
            reader = message.read_by
            if place[reader] != place[operation]:
                transfer = "F" if operation.kind == "F" else "B"
                actions[place[operation]].append(f"{operation.stage}SEND_{transfer}{operation.microbatch}")
                actions[place[reader]].append(f"{reader.stage}RECV_{transfer}{reader.microbatch}")
    return tuple(map(tuple, actions))


def _by_end(orders: Sequence[Sequence[Operation]], lowered: Lowered, stages: Sequence[Stage]) -> list[Operation]:
    """All operations in the order in which they end when transfers take no time; none before what it waits for."""
    waits: dict[Operation, int] = defaultdict(int)
    followers: dict[Operation, list[Operation]] = defaultdict(list)
    for before, after in _dependencies(orders, lowered):
        waits[after] += 1
        followers[before].append(after)
    ready = deque(operation for order in orders for operation in order if not waits[operation])
    start_s: dict[Operation, float] = defaultdict(float)
    ends: list[tuple[float, int, Operation]] = []
    while ready:
        operation = ready.popleft()
        end_s = start_s[operation] + _duration_s(operation, stages)
        ends.append((end_s, len(ends), operation))
        for after in followers[operation]:
            start_s[after] = max(start_s[after], end_s)
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    if len(ends) < sum(map(len, orders)):
        stuck = next(operation for order in orders for operation in order if waits[operation])
        raise InvalidInputError(
            [Fault("deadlock", f"the orders wait for each other, {stuck} first", "/schedule/orders")]
        )
    return [operation for _, _, operation in sorted(ends)]


def _dependencies(orders: Sequence[Sequence[Operation]], lowered: Lowered) -> list[tuple[Operation, Operation]]:
    """Each operation waits for the one before it on its device, and for what it reads."""
    found = [(order[k], order[k + 1]) for order in orders for k in range(len(order) - 1)]
    return [*found, *((message.made_by, message.read_by) for message in lowered.messages)]


def _duration_s(operation: Operation, stages: Sequence[Stage]) -> float:
    forward, backward = SHARES[operation.kind]
    stage = stages[operation.stage]
    return forward * stage.forward_s + backward * stage.backward_s
