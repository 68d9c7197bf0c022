"""What is compared: for each schedule its plan over equal stages, its formula, and where the formula holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bapipe.catalogue import formulas
from bapipe.catalogue.makers import Made, given, named
from bapipe.catalogue.setting import Setting
from bapipe.schedules.interleaved import interleaved_orders
from bapipe.schedules.zero_bubble import zb_h_orders, zb_v_orders


@dataclass(frozen=True)
class Entry:
    """A schedule. `holds`: whether `seconds`, the formula, is the time of a setting; `possible`: whether it can be
    built (`needs` says what that takes).

    `for_free_links`: its order is made for transfers that take no time. `demand`: what it asks of one direction of a
    link, in activations (a) a second.
    """

    name: str
    title: str
    what: str
    links: str
    make: Made
    formula: str
    conditions: str
    holds: Callable[[Setting], bool]
    seconds: Callable[[Setting], float]
    in_flight: str
    demand: str
    needs: str = ""
    possible: Callable[[Setting], bool] = lambda setting: True
    figure: Literal["step", "period"] = "step"
    for_free_links: bool = False


ENTRIES = (
    Entry(
        name="data-parallel",
        title="Data parallel",
        what="The whole model on every device; micro-batches in turn, gradients reduced while the last backward runs.",
        links="overlapped",
        make=named("data-parallel"),
        formula="⌈M/N⌉·N·T",
        conditions="C = 0; otherwise what is left of the all-reduce comes on top",
        holds=formulas.free,
        seconds=formulas.replicated_s,
        in_flight="1, of the whole model",
        demand="2(N-1)/N of all gradients, once a step",
    ),
    Entry(
        name="gpipe",
        title="GPipe",
        what="All forwards, then all backwards.",
        links="overlapped",
        make=named("gpipe"),
        formula="(M+N-1)·T + 2(N-1)·C",
        conditions="C ≤ min(F, B)",
        holds=formulas.short,
        seconds=formulas.gpipe_s,
        in_flight="M",
        demand="a/F forward, then a/B backward",
    ),
    Entry(
        name="1f1b",
        title="1F1B",
        what="A backward as soon as possible, then one forward and one backward in turn.",
        links="overlapped",
        make=named("1f1b"),
        formula="(M+N-1)·T",
        conditions="C = 0; otherwise N micro-batches more take N·T + 2(N-1)·C more",
        holds=formulas.free,
        seconds=formulas.flushed_s,
        in_flight="min(M, N-i+1)",
        demand="a/T each way on average, and each transfer is waited for",
    ),
    Entry(
        name="1f1b-sno",
        title="1F1B-SNO",
        what="1F1B over links that stop both devices; where two have something for each other, they exchange at once.",
        links="blocking, fused exchange",
        make=named("1f1b", mode="blocking"),
        formula="(M+N-1)·T + (2M+2N-5)·C + max(0, C-F) + max(0, C-B)",
        conditions="N ≥ 3, M ≥ 2; N = 2: (M+1)·(T + C); M = 1: N·T + 2(N-1)·C",
        holds=lambda setting: True,
        seconds=formulas.sno_s,
        in_flight="min(M, N-i+1)",
        demand="a/T each way on average, and both devices stop for it",
    ),
    Entry(
        name="1f1b-so",
        title="1F1B-SO",
        what="1F1B with twice the warm-up, so that a transfer hides behind the compute of another micro-batch.",
        links="overlapped",
        make=named("1f1b-so"),
        formula="(M+N-1)·T + 2(N-1)·C",
        conditions="2C ≤ T and C ≤ min(F, B)",
        holds=formulas.hidden,
        seconds=formulas.gpipe_s,
        in_flight="min(M, 2(N-i)+1)",
        demand="a/min(F, B, T/2) each way",
    ),
    Entry(
        name="1f1b-as",
        title="1F1B-AS",
        what="1F1B between asynchronous devices that pass a tensor on in g chunks while they make it.",
        links="streaming",
        make=named("1f1b", mode="streaming"),
        formula="M·T + (N-1)·T/g",
        conditions="C = 0; g = 1 is store-and-forward",
        holds=formulas.free,
        seconds=formulas.cut_through_s,
        in_flight="min(M, N-i+1)",
        demand="a/F forward, a/B backward",
    ),
    Entry(
        name="fbp-as",
        title="FBP-AS",
        what="Every device split into a forward and a backward engine, which work side by side and take T each.",
        links="streaming",
        make=named("fbp-as", mode="streaming"),
        formula="(M+1)·T + 2(N-1)·T/g; g = 1: (M+2N-1)·T",
        conditions="C = 0",
        holds=formulas.free,
        seconds=formulas.fbp_s,
        in_flight="min(M, 2(N-i+1))",
        demand="a/T each way",
    ),
    Entry(
        name="pipedream",
        title="PipeDream",
        what=(
            "Asynchronous 1F1B: no flush, weights updated after every backward, gradients of weights that have been "
            "updated since. The time is the period, that of M micro-batches in steady repetition."
        ),
        links="overlapped",
        make=named("pipedream"),
        formula="M·(T + 2(N-1)·C/N)",
        conditions="any C",
        holds=lambda setting: True,
        seconds=formulas.endless_s,
        in_flight="N-i+1, and as many weight versions",
        demand="a/T each way on average, and each transfer is waited for",
        figure="period",
    ),
    Entry(
        name="interleaved",
        title="Interleaved 1F1B",
        what="Two chunks of the model on every device, executed in turn for N micro-batches each.",
        links="overlapped",
        make=given(
            lambda setting: interleaved_orders(setting.stages, setting.microbatches, formulas.CHUNKS_A_DEVICE),
            lambda stage, devices: stage % devices,
            formulas.CHUNKS_A_DEVICE,
        ),
        formula="(MV+N-1)·T/V",
        conditions="C = 0, N divides M, M > N; V = 2 chunks a device",
        holds=lambda setting: formulas.free(setting) and setting.microbatches > setting.stages,
        seconds=formulas.interleaved_s,
        in_flight="min(MV, 2(N-i)+(V-1)N+1) chunks, each 1/V of a stage",
        demand="V·a/T each way on average, and around from the last device to the first",
        needs="N divides M",
        possible=formulas.divided,
        for_free_links=True,
    ),
    Entry(
        name="zb-h1",
        title="ZB-H1",
        what="The backward split into input gradient I and weight gradient W, which fills the cool-down.",
        links="overlapped",
        make=given(lambda setting: zb_h_orders(setting.stages, setting.microbatches, 1), lambda stage, devices: stage),
        formula="M·(F+I+W) + (N-1)·(F+I-W)",
        conditions="C = 0, M ≥ 2N-1; here I = W = B/2 = F",
        holds=formulas.even,
        seconds=formulas.zb_h1_s,
        in_flight="N, up to W",
        demand="a/T each way on average, and each transfer is waited for",
        for_free_links=True,
    ),
    Entry(
        name="zb-h2",
        title="ZB-H2",
        what="The same with twice the warm-up: no device idles between its first and its last operation.",
        links="overlapped",
        make=given(lambda setting: zb_h_orders(setting.stages, setting.microbatches, 2), lambda stage, devices: stage),
        formula="M·(F+I+W) + (N-1)·max(F, F+I-2W)",
        conditions="C = 0, M ≥ 2N-1; here I = W = B/2 = F",
        holds=formulas.even,
        seconds=formulas.zb_h2_s,
        in_flight="2N-1, up to W",
        demand="a/T each way on average",
        for_free_links=True,
    ),
    Entry(
        name="zb-v",
        title="ZB-V",
        what=(
            "Two stages a device, down the devices and up again, with I and W: as much in flight as in 1F1B, no idle "
            "time between the first and the last operation of a device."
        ),
        links="overlapped",
        make=given(
            lambda setting: zb_v_orders(setting.stages, setting.microbatches),
            lambda stage, devices: min(stage, 2 * devices - 1 - stage),
            2,
        ),
        formula="2M·(f+i+w) + (N-1)·f",
        conditions="C = 0, M ≥ 2N-1, a chunk's f = i = w (F/2 = B/4)",
        holds=formulas.even,
        seconds=formulas.zb_v_s,
        in_flight="2N chunks, each half a stage, up to W",
        demand="2a/T each way on average",
        needs="M ≥ 2N-1",
        possible=formulas.filled,
        for_free_links=True,
    ),
)
