"""Published schedules as orders that a user would give, and equal stages to replay them on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from bapipe.lowering import Lowered, Manner, Operation, Route, earlier, lower, split_order
from bapipe.simulator.events import Job, Price, Replayed, replay_events

Orders = list[list[Operation]]


def lowered_pipeline(orders: Sequence[Sequence[Operation]], num_stages: int, manner: Manner) -> Lowered:
    """Orders of a chain of stages with the transfers between them."""
    routes = [Route(s, s + 1, 1.0) for s in range(num_stages - 1)]
    return lower(orders, routes, lambda source, target, size: manner)


def job_of(lowered: Lowered, seconds: dict[str, float], send_s: float) -> Job:
    """Equal stages: seconds by kind of operation, and of each transfer that is not free."""
    orders = [[step for step in order if isinstance(step, Operation)] for order in lowered.orders]
    apart = {operation.stage for order in orders for operation in order if operation.kind == "R"}
    return Job(
        lowered=lowered,
        seconds=tuple({operation: seconds[operation.kind] for operation in order} for order in orders),
        prices=tuple(
            Price(0.0, ()) if message.manner == "free" else Price(send_s, ((message.source, message.target),))
            for message in lowered.messages
        ),
        earlier={
            operation: before
            for order in orders
            for operation in order
            if (before := earlier(operation, recomputed=operation.stage in apart))
        },
        buckets=(),
        optimizer_s=(0.0,) * len(orders),
        devices=tuple(range(len(orders))),
        num_microbatches=1 + max(operation.microbatch for order in orders for operation in order),
    )


def replay_equal(
    orders: Orders, seconds: dict[str, float], send_s: float = 0.0, manner: Manner = "free", stages: int = 0
) -> Replayed:
    """A step of equal stages, as many as there are orders unless said."""
    return replay_events(job_of(lowered_pipeline(orders, stages or len(orders), manner), seconds, send_s))


def makespan_s(
    orders: Orders, seconds: dict[str, float], send_s: float = 0.0, manner: Manner = "free", stages: int = 0
) -> float:
    """The end of the last operation."""
    return max(replay_equal(orders, seconds, send_s, manner, stages).compute_end_s)


def streamed_s(orders: Orders, seconds: dict[str, float], chunks: int, *, engines: int = 1) -> float:
    """The end of the last operation over free links that pass a tensor on in chunks. `engines` 2: forwards beside
    backwards."""
    n = len(orders)
    tracks: list[Sequence[Operation]] = list(orders)
    gates: list[tuple[Operation, Operation]] = []
    if engines == 2:
        halves = [split_order(order) for order in orders]
        tracks = [track for pair, _ in halves for track in pair]
        gates = [gate for _, own in halves for gate in own]
    routes = [Route(s, s + 1, 1.0) for s in range(n - 1)]
    lowered = lower(tracks, routes, lambda source, target, size: "streaming", gates)
    job = job_of(lowered, seconds, 0.0)
    prices = tuple(Price(0.0, (), 1 if message.manner == "free" else chunks) for message in lowered.messages)
    devices = tuple(number // engines for number in range(len(tracks)))
    return max(replay_events(replace(job, prices=prices, devices=devices)).compute_end_s)


def one_f_one_b(n: int, m: int) -> Orders:
    """1F1B: min(M, N - s - 1) forwards, then one forward and one backward in turn."""
    return [
        _in_turn([Operation(s, "F", k) for k in range(m)], [[Operation(s, "B", k)] for k in range(m)], n - s - 1)
        for s in range(n)
    ]


def interleaved(n: int, m: int, v: int) -> Orders:
    """Interleaved 1F1B (Narayanan et al., arXiv 2104.04473): stage c·N + d is chunk c of device d; N divides M."""
    orders = []
    for d in range(n):
        forwards = [_chunked(n, v, d, j, "F") for j in range(m * v)]
        backwards = [[_chunked(n, v, d, j, "B")] for j in range(m * v)]
        orders.append(_in_turn(forwards, backwards, m * v if m == n else 2 * (n - d - 1) + (v - 1) * n))
    return orders


def zero_bubble(n: int, m: int, variant: int) -> Orders:
    """ZB-H1 and ZB-H2 (Qi et al., arXiv 2401.10241): I as soon as it can be, W a number of micro-batches later."""
    orders = []
    for s in range(n):
        lag = variant * s
        forwards = [Operation(s, "F", k) for k in range(m)]
        backwards = [[Operation(s, "I", k), *([Operation(s, "W", k - lag)] if k >= lag else [])] for k in range(m)]
        late = [Operation(s, "W", k) for k in range(max(0, m - lag), m)]
        orders.append([*_in_turn(forwards, backwards, variant * (n - s - 1)), *late])
    return orders


def forward_backward(n: int, m: int, chunks: int = 1) -> Orders:
    """FBP: so many forwards until the first gradient is back, then backward and forward side by side."""
    orders = []
    for s in range(n):
        first = min(m, 1 + ceil(2 * (n - s - 1) / chunks))
        order = [Operation(s, "F", k) for k in range(first)]
        for k in range(m):
            order.append(Operation(s, "B", k))
            order += [Operation(s, "F", first + k)] if first + k < m else []
        orders.append(order)
    return orders


def _chunked(n: int, v: int, device: int, j: int, kind: str) -> Operation:
    group, place = divmod(j, n * v)
    chunk = place // n if kind == "F" else v - 1 - place // n
    return Operation(chunk * n + device, kind, group * n + place % n)


def _in_turn(forwards: list[Operation], backwards: list[list[Operation]], warm_up: int) -> list[Operation]:
    first = min(warm_up, len(forwards))
    order = forwards[:first]
    for k, backward in enumerate(backwards):
        order += [*forwards[first + k : first + k + 1], *backward]
    return order
