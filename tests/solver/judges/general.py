"""An independent judge of any plan: times by fixed-point iteration over all starts, bytes by walking the orders.

It shares no code with the simulator: it reads a plan's documents and does its own arithmetic. Slow and plain. Each
layer has one measured time for each kind of device, at micro-batch size 1.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bapipe.plan import Plan

Op = tuple[int, str, int]
"""Stage, kind, micro-batch."""


@dataclass
class Parcel:
    """Something that keeps lanes busy: a transfer, or the reduction of a bucket (`sender` None)."""

    priority: tuple[Any, ...]
    seconds: float
    lanes: tuple[Any, ...]
    sender: Op | None = None
    reader: Op | None = None
    ends: tuple[str, str] = ("", "")
    size: float = 0.0
    holds: bool = False
    exchange: str = ""
    ready: list[Any] = field(default_factory=list)
    ring: tuple[str, ...] = ()
    begun: float = 0.0
    chunks: int = 0
    arrival: float = 0.0
    until: float = 0.0


class Judge:
    """`step_time_s`, `starts[op]`, `peaks[device id]`, `sent` ((sender, reader) -> start), `reduced` starts."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.request = plan, plan.request
        self.cluster, self.profile = plan.request.cluster, plan.request.profile
        assert plan.schedule is not None
        self.m, self.size = plan.schedule.num_microbatches, plan.schedule.microbatch_size
        self.devices = {device.id: device for device in self.cluster.devices}
        self.layers = {layer.id: layer for layer in self.profile.layers}
        self.stage_of = {name: s for s, stage in enumerate(plan.stages) for name in stage.layers}
        self.orders = {
            device.id: [self.parsed(name) for name in order]
            for device, order in zip(self.cluster.devices, plan.schedule.orders, strict=True)
        }
        self.used = [device for device in self.orders if any(device in stage.devices for stage in plan.stages)]
        self.place = {op: device for device, order in self.orders.items() for op in order}
        self.versions = plan.schedule.weight_versions
        if self.versions:
            self.place |= {(s, "O", k): device for (s, kind, k), device in list(self.place.items()) if kind == "B"}
        self.has_r = {op[0] for op in self.place if op[1] == "R"}
        self.training = self.request.task == "training"
        self.parcels = [*self.transfers(), *(self.reductions() if self.training else [])]
        self.solve()
        self.peaks = {device: self.peak(device) for device in self.used}

    @staticmethod
    def parsed(name: str) -> Op:
        at = next(k for k, letter in enumerate(name) if letter.isalpha())
        return int(name[:at]), name[at], int(name[at + 1 :])

    def seconds(self, op: Op, upto: set[str] | None = None) -> float:
        """Of an operation; with `upto`, until the gradients of those layers are complete."""
        stage, kind, _ = op
        device = self.devices[self.place[op]]
        if kind == "O":
            return self.update(device.id)
        total, left = 0.0, None if upto is None else set(upto)
        again = set(self.plan.stages[stage].recomputed_layers)
        mine = [name for name in self.layers if name in self.plan.stages[stage].layers]
        for name in reversed(mine):
            time = next(t for t in self.layers[name].times if t.device_kind == device.kind)
            part = {
                "F": time.forward_s,
                "B": time.backward_s,
                "I": time.input_gradient_s or 0.0,
                "W": time.weight_gradient_s or 0.0,
                "R": time.forward_s if name in again else 0.0,
            }[kind]
            total += part
            if left is not None:
                left.discard(name)
                if not left:
                    break
        if kind in "BI" and stage not in self.has_r:
            for name in again:
                total += next(t for t in self.layers[name].times if t.device_kind == device.kind).forward_s
        return total * self.size / device.speed / self.engine(op)

    def engine(self, op: Op) -> float:
        share = self.plan.stages[op[0]].forward_share
        return 1.0 if share is None else share if op[1] == "F" else 1 - share

    def halves(self, device: str) -> bool:
        """Whether forwards and backwards run side by side."""
        return any(s.forward_share is not None for s in self.plan.stages if device in s.devices)

    def held_back(self) -> dict[Op, list[Op]]:
        """What a forward on a split device awaits: the backwards listed before it, but for the last."""
        return {
            op: [b for b in order[:k] if b[1] == "B"][:-1]
            for device, order in self.orders.items()
            if self.halves(device)
            for k, op in enumerate(order)
            if op[1] == "F"
        }

    def way(self, a: str, b: str) -> tuple[Any, list[Any]]:
        one, two = self.devices[a], self.devices[b]
        links = self.cluster.links
        link = links.within_host
        if one.host != two.host or one.rack != two.rack:
            if one.rack == two.rack:
                link = links.between_hosts or links.within_host
            else:
                link = links.between_racks or links.between_hosts or links.within_host
        for pair in links.pairs:
            if set(pair.devices) == {a, b}:
                link = pair.link
        away = self.cluster.host_nic is not None and (one.host, one.rack) != (two.host, two.rack)
        return link, [(x.rack, x.host, "card") for x in (one, two)] if away else []

    def hop(self, a: str, b: str, size: float) -> float:
        link, cards = self.way(a, b)
        ways = [link, self.cluster.host_nic] if cards else [link]
        return max(w.latency_s + size / (w.bandwidth_bytes_per_s or float("inf")) for w in ways) if size else 0.0

    def flows(self) -> dict[tuple[int, int], float]:
        """Bytes per micro-batch from stage to stage."""
        result = {(s, s + 1): 0.0 for s in range(len(self.plan.stages) - 1)}
        edges = self.profile.edges
        pairs = [(e.source, e.target) for e in edges] if edges is not None else list(pairwise(self.layers))
        for name, layer in self.layers.items():
            home = self.stage_of[name]
            readers = {self.stage_of[b] for a, b in pairs if a == name}
            if self.cluster.skip_tensors == "direct":
                reached = {(home, reader) for reader in readers if reader != home}
            else:
                reached = {(s, s + 1) for s in range(home, max(readers, default=home))}
            for way in reached:
                result[way] = result.get(way, 0.0) + layer.output_bytes_per_sample * self.size
        return result

    def back(self, stage: int, k: int) -> Op:
        return (stage, "B", k) if (stage, "B", k) in self.place else (stage, "I", k)

    def transfers(self) -> list[Parcel]:
        found = []
        for (a, b), size in self.flows().items():
            for k in range(self.m):
                ways = [((a, "F", k), (b, "F", k))]
                if self.training:
                    ways.append((self.back(b, k), self.back(a, k)))
                for sender, reader in ways:
                    source, target = self.place[sender], self.place[reader]
                    parcel = Parcel((k, sender[0], sender[1], reader[0]), 0.0, (), sender, reader, (source, target))
                    if source != target:
                        link, cards = self.way(source, target)
                        parcel.size, parcel.seconds = size, self.hop(source, target, size)
                        parcel.lanes = ((source, target), *cards) if parcel.seconds else ()
                        parcel.holds = link.mode == "blocking" and parcel.seconds > 0
                        parcel.exchange = link.exchange
                        if link.mode == "streaming" and size:
                            parcel.chunks = self.chunks(link, sender, reader)
                            parcel.seconds = parcel.chunks * self.hop(source, target, size / parcel.chunks)
                            parcel.lanes = ((source, target), *cards)
                    found.append(parcel)
        return found

    def chunks(self, link: Any, sender: Op, reader: Op) -> int:
        kinds = {kind.name: kind for kind in self.cluster.kinds}
        for op in (sender, reader):
            if kinds[self.devices[self.place[op]].kind].execution != "async":
                return 1
            if not all(self.layers[name].streamable for name in self.plan.stages[op[0]].layers):
                return 1
        return int(link.chunks)

    def stream(self, parcel: Parcel, made_from: float, first: float) -> None:
        """Chunk after chunk, each once it is made and the one before it is through."""
        made, read, g = self.cost[parcel.sender], self.cost[parcel.reader], parcel.chunks  # type: ignore[index]
        now, latest = first, 0.0
        for j in range(1, g + 1):
            now = max(now, made_from + j * made / g) + parcel.seconds / g
            latest = max(latest, now - (j - 1) * read / g)
        parcel.arrival, parcel.until = latest, now

    def reductions(self) -> list[Parcel]:
        found: list[tuple[int, float, list[tuple[int, str, list[str]]]]] = []
        for s, stage in enumerate(self.plan.stages):
            if len(stage.devices) > 1:
                held: list[str] = []
                for name in reversed([name for name in self.layers if name in stage.layers]):
                    held += [name] if self.gradient(name) else []
                    if sum(map(self.gradient, held)) >= self.request.gradient_bucket_bytes:
                        found.append((s, sum(map(self.gradient, held)), [(s, d, held) for d in stage.devices]))
                        held = []
                if held:
                    found.append((s, sum(map(self.gradient, held)), [(s, d, held) for d in stage.devices]))
        for tied in self.profile.tied_parameters:
            holders = [
                (s, device, [name for name in tied.layers if name in stage.layers])
                for s, stage in enumerate(self.plan.stages)
                for device in stage.devices
                if set(tied.layers) & set(stage.layers)
            ]
            if len({device for _, device, _ in holders}) > 1:
                found.append((holders[0][0], tied.parameter_bytes, holders))
        return [self.reduction(number, *each) for number, each in enumerate(found)]

    def reduction(self, number: int, stage: int, size: float, holders: list[tuple[int, str, list[str]]]) -> Parcel:
        ring = list(dict.fromkeys(device for _, device, _ in holders))
        hops = list(zip(ring, [*ring[1:], ring[0]], strict=True))
        part = size / len(ring)
        cards: dict[Any, float] = defaultdict(float)
        for a, b in hops:
            for card in self.way(a, b)[1]:
                cards[card] += self.hop(a, b, part)
        pace = max([self.hop(a, b, part) for a, b in hops] + list(cards.values()))
        seconds = 2 * (len(ring) - 1) * pace
        lanes = (*hops, *cards) if seconds else ()
        assert self.plan.schedule is not None
        late = self.plan.schedule.all_reduce == "blocking" or any(self.way(*hop)[0].mode == "blocking" for hop in hops)
        parcel = Parcel((self.m, stage, "G", number), seconds, lanes, ring=tuple(ring), size=size)
        for s, device, names in holders:
            own = [op for op in self.orders[device] if op[0] == s and op[1] in "BW"]
            if late or not own:
                parcel.ready.append((device, None, 0.0))
            else:
                parcel.ready.append((device, own[-1], self.seconds(own[-1], set(names))))
        return parcel

    def gradient(self, name: str) -> int:
        layer = self.layers[name]
        return layer.parameter_bytes if layer.gradient_bytes is None else layer.gradient_bytes

    def scripts(self) -> dict[str, list[Any]]:
        """Of each device its operations and the groups of parcels for which it stops, in order."""
        spot = {op: (device, k) for device, order in self.orders.items() for k, op in enumerate(order)}
        stops: dict[Any, list[Parcel]] = defaultdict(list)
        for parcel in self.parcels:
            if parcel.holds:
                device, k = spot[parcel.sender]  # type: ignore[index]
                stops[frozenset([(device, k + 0.5), (spot[parcel.reader][0], spot[parcel.reader][1] - 0.5)])].append(
                    parcel
                )  # type: ignore[index]
        scripts: dict[str, list[Any]] = {}
        for device, order in self.orders.items():
            script: list[Any] = []
            for k in range(len(order) + 1):
                here = [(ends, group) for ends, group in stops.items() if (device, k - 0.5) in ends]
                ranked = []
                for _, group in here:
                    mine = [p for p in group if p.ends[0] == device]
                    theirs = [p for p in group if p.ends[1] == device]
                    if mine and theirs:
                        first = min((0, p.reader) for p in mine)
                        both = sorted(group, key=lambda p: (p.sender[1] != "F", p.sender, p.reader))  # type: ignore[index]
                        groups = [group] if group[0].exchange == "fused" else [[p] for p in both]
                        ranked.append((first, groups))
                    else:
                        ranked += [((0, p.reader), [[p]]) for p in mine] + [((1, p.sender), [[p]]) for p in theirs]
                for _, groups in sorted(ranked, key=lambda pair: pair[0]):
                    script += [tuple(map(id, sorted(g, key=lambda p: p.priority))) for g in groups]
                if self.versions and k and order[k - 1][1] == "B":
                    script.append((order[k - 1][0], "O", order[k - 1][2]))
                script += order[k : k + 1]
            if self.halves(device):
                scripts[f"{device}/F"] = [op for op in script if op[1] == "F"]
                scripts[f"{device}/B"] = [op for op in script if op[1] != "F"]
            else:
                scripts[device] = script
        return scripts

    def solve(self) -> None:
        scripts = self.scripts()
        known = {id(parcel): parcel for parcel in self.parcels}
        self.starts: dict[Op, float] = dict.fromkeys(self.place, 0.0)
        self.cost = {op: self.seconds(op) for op in self.place}
        late = self.held_back()
        inbox: dict[Op, list[Parcel]] = defaultdict(list)
        for parcel in self.parcels:
            if parcel.reader is not None:
                inbox[parcel.reader].append(parcel)
        for _ in range(4 * (len(self.place) + len(self.parcels)) + 10):
            before = (dict(self.starts), [(parcel.begun, parcel.arrival) for parcel in self.parcels])
            reached: dict[Any, float] = {}
            done: dict[str, float] = {}
            for name, script in scripts.items():
                device, now = name.partition("/")[0], 0.0
                for step in script:
                    if step in self.place:
                        self.starts[step] = max(now, self.earliest(step, inbox[step], late.get(step, [])))
                        now = self.starts[step] + self.cost[step]
                    else:
                        reached[step] = max(now, reached.get(step, 0.0))
                        now = max([now, *(known[number].begun + known[number].seconds for number in step)])
                done[device] = max(now, done.get(device, 0.0))
            self.serve(reached, done)
            if before == (self.starts, [(parcel.begun, parcel.arrival) for parcel in self.parcels]):
                break
        else:
            raise ValueError("no start times satisfy the orders")
        self.finish(done)

    def earliest(self, op: Op, awaited: list[Parcel], late: list[Op]) -> float:
        """When all is there that an operation reads or must not overtake."""
        mates = [(op[0], kind, op[2]) for kind in {"R": "F", "B": "RF", "I": "RF", "W": "I"}.get(op[1], "")]
        before = [*late, *(mate for mate in mates if mate in self.place)]
        return max([0.0, *(p.arrival for p in awaited), *(self.starts[b] + self.cost[b] for b in before)])

    def serve(self, reached: dict[Any, float], done: dict[str, float]) -> None:
        """First come, first served on every lane."""
        queue: list[tuple[Any, list[Parcel]]] = []
        grouped = {id(p): step for step in reached for p in self.parcels if id(p) in step}
        seen = set()
        for parcel in self.parcels:
            if parcel.sender is None:
                ready = max(
                    done[device] if op is None else self.starts[op] + after for device, op, after in parcel.ready
                )
                queue.append(((ready, *parcel.priority), [parcel]))
            elif id(parcel) not in grouped:
                ready = self.starts[parcel.sender] + self.cost[parcel.sender] / (parcel.chunks or 1)
                queue.append(((ready, *parcel.priority), [parcel]))
            elif grouped[id(parcel)] not in seen:
                step = grouped[id(parcel)]
                seen.add(step)
                group = sorted((p for p in self.parcels if id(p) in step), key=lambda p: p.priority)
                queue.append(((reached[step], *group[0].priority), group))
        free: dict[Any, float] = defaultdict(float)
        for (ready, *_), group in sorted(queue, key=lambda item: item[0]):
            for parcel in sorted(group, key=lambda p: (p.sender is not None and p.sender[1] != "F", p.priority)):
                parcel.begun = max([ready, *(free[lane] for lane in parcel.lanes)])
                parcel.arrival = parcel.until = parcel.begun + parcel.seconds
                if parcel.chunks:
                    self.stream(parcel, self.starts[parcel.sender], parcel.begun)  # type: ignore[index]
                for lane in parcel.lanes:
                    free[lane] = parcel.until

    def finish(self, done: dict[str, float]) -> None:
        ends = dict(done)
        for parcel in self.parcels:
            for device in parcel.ring:
                ends[device] = max(ends[device], parcel.begun + parcel.seconds)
        last = {device: 0.0 if self.versions else self.update(device) for device in self.used}
        self.step_time_s = max(ends[device] + last[device] for device in self.used)
        self.reduced = [parcel.begun for parcel in self.parcels if parcel.sender is None]
        self.sent = {(p.sender, p.reader): p.begun for p in self.parcels if p.sender is not None and p.seconds}

    def names_on(self, device: str) -> list[str]:
        return [name for stage in self.plan.stages if device in stage.devices for name in stage.layers]

    def copies(self, device: str) -> list[int]:
        return [t.parameter_bytes for t in self.profile.tied_parameters if set(t.layers) & set(self.names_on(device))]

    def state(self, parameter_bytes: float) -> float:
        return parameter_bytes / self.profile.bytes_per_parameter * self.request.optimizer_bytes_per_parameter

    def update(self, device: str) -> float:
        rate = next(k for k in self.cluster.kinds if k.name == self.devices[device].kind).memory_bandwidth_bytes_per_s
        if rate is None or not self.training:
            return 0.0
        moved = 0.0
        for name in self.names_on(device):
            layer = self.layers[name]
            held = layer.parameter_bytes + layer.master_weight_bytes + self.state(layer.parameter_bytes)
            moved += 2 * held + self.gradient(name)
        for size in self.copies(device):
            moved += 2 * (size + self.state(size)) + size
        return moved / rate

    def peak(self, device: str) -> float:
        kind = next(k for k in self.cluster.kinds if k.name == self.devices[device].kind)
        total = float(kind.reserved_bytes)
        for name in self.names_on(device):
            layer = self.layers[name]
            total += layer.parameter_bytes
            if self.training:
                total += self.gradient(name) + layer.master_weight_bytes + self.state(layer.parameter_bytes)
        for size in self.copies(device):
            total += 2 * size + self.state(size) if self.training else size
        stages = [s for s, stage in enumerate(self.plan.stages) if device in stage.devices]
        total += max(self.layers[name].workspace_bytes for name in self.names_on(device))
        if self.versions:
            older = self.versions[stages[0]] - 1
            total += older * (
                sum(self.layers[n].parameter_bytes for n in self.names_on(device)) + sum(self.copies(device))
            )
            self.orders[device] = self.many(stages[0])
        total += sum(self.buffers(device, s) for s in stages)
        return total + (self.most_stashed(device) if self.training else 0.0)

    def many(self, stage: int) -> list[Op]:
        """The operations of so many mini-batches that more micro-batches than are in flight are among them."""
        assert self.versions is not None
        count = next(steps for steps in range(1, 99) if steps * self.m > self.versions[stage]) * self.m
        ahead, order = self.versions[stage] - 1, []
        for k in range(count + ahead):
            order += [(stage, "F", k)] if k < count else []
            order += [(stage, "B", k - ahead)] if k >= ahead else []
        return order

    def stash(self, stage: int, *, full: bool) -> float:
        total = 0.0
        for name in self.plan.stages[stage].layers:
            layer = self.layers[name]
            whole = layer.stash_bytes_per_sample
            whole = layer.output_bytes_per_sample if whole is None else whole
            less = not full and name in self.plan.stages[stage].recomputed_layers
            total += (layer.recompute_stash_bytes_per_sample or 0.0) if less else whole
        return total * self.size

    def most_stashed(self, device: str) -> float:
        held: dict[tuple[int, int], float] = {}
        most = 0.0
        order = self.orders[device]
        if order and self.halves(device):
            return self.stash(order[0][0], full=True) * self.side_by_side(order)
        for stage, kind, k in order:
            if kind == "F":
                held[stage, k] = self.stash(stage, full=False)
            elif kind == "R" or (kind in "BI" and stage not in self.has_r):
                held[stage, k] = self.stash(stage, full=True)
            most = max(most, sum(held.values()))
            if kind in "BW":
                del held[stage, k]
        return most

    def side_by_side(self, order: list[Op]) -> int:
        """Most micro-batches alive when each backward may last until the next one starts."""
        most = 0
        for k, (_, kind, _) in enumerate(order):
            before = sum(b[1] == "B" for b in order[:k])
            ended = before if kind == "B" else max(0, before - 1)
            most = max(most, sum(f[1] == "F" for f in order[: k + 1]) - ended)
        return most

    def buffers(self, device: str, stage: int) -> float:
        mine = [op for op in self.orders[device] if op[0] == stage]
        alive: set[int] = set()
        grads: set[int] = set()
        most = using = 0
        for _, kind, k in mine:
            if kind == "F":
                alive.add(k)
            if kind in "BI":
                grads.add(k)
            most, using = max(most, len(alive)), max(using, len(grads))
            if kind in "BW" or not self.training:
                alive.discard(k)
                grads.discard(k)
        most = self.side_by_side(mine) if self.halves(device) else most
        n = sum(kind == "F" for _, kind, _ in mine)
        everything = self.cluster.receive_buffers == "all"
        forwards = [p for p in self.parcels if p.sender and p.sender[1] == "F" and p.ends[0] != p.ends[1]]
        into = {p.sender[0]: p.size for p in forwards if p.ends[1] == device and p.reader[0] == stage}  # type: ignore[index]
        out = {p.reader[0]: p.size for p in forwards if p.ends[0] == device and p.sender[0] == stage}  # type: ignore[index]
        received, sent = sum(into.values()), sum(out.values())
        total = (n if everything else min(n, most + 1)) * received + (n if everything else min(n, 2)) * sent
        if self.training:
            total += (n if everything else min(n, 2)) * received + (n if everything else min(n, using + 1)) * sent
        return total
