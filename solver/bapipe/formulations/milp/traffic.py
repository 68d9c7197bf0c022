"""What passes between stages: relayed from each to the next, or sent direct to every stage that reads it."""

from __future__ import annotations

from collections import defaultdict

import pulp

from bapipe.formulations.milp.program import Program, Sum

Way = tuple[int, int]
"""From one stage to a later one."""


class Traffic:
    """`carried[way][t]`: whether tensor t goes that way. `busy[way]`: whether anything does, where a link has latency.

    Relayed over the cut behind stage i: within[source][i] - last[t][i]. Direct: at least held[source][i] + reads[t][j]
    - 1, where reads[t][j] is at least each held[reader][j].
    """

    def __init__(self, program: Program) -> None:
        self._program, self._problem = program, program.problem
        self.carried: dict[Way, dict[int, Sum]] = defaultdict(dict)
        if self._problem.request.cluster.skip_tensors == "relay":
            self._relay()
        else:
            self._send_direct()
        self.busy = {way: self._busy(way) for way in self.carried if self._problem.link(*way).latency_s}

    def _relay(self) -> None:
        for crossing in self._problem.crossings:
            source, last = self._program.within[crossing.source], self._program.last[crossing.tensor]
            for s in self._program.stages[:-1]:
                terms = {} if last is source else {source[s]: 1.0, last[s]: -1.0}
                self.carried[s, s + 1][crossing.tensor] = Sum(terms, most=1.0)

    def _send_direct(self) -> None:
        for crossing in self._problem.crossings:
            for j in self._program.stages[1:]:
                reads = self._program.variable(0, 1)
                for reader in crossing.readers:
                    self._program.at_least(reads, self._program.held(reader, j))
                for i in range(j):
                    sent, both = self._program.variable(0, 1), self._program.held(crossing.source, i)
                    both.add(Sum({reads: 1.0}, -1.0))
                    self._program.at_least(sent, both)
                    self.carried[i, j][crossing.tensor] = Sum({sent: 1.0}, most=1.0)

    def _busy(self, way: Way) -> pulp.LpVariable:
        busy = self._program.variable(0, 1)
        for carried in self.carried[way].values():
            self._program.at_least(busy, carried)
        return busy
