"""Times of schedules over equal stages in closed form, and the conditions under which they hold.

N stages, M micro-batches, T = F + B, C one transfer, g chunks. Derived for equal stages; tests hold the simulator to
them exactly.
"""

from __future__ import annotations

from bapipe.catalogue.setting import Setting

CHUNKS_A_DEVICE = 2
"""V of the interleaved schedule."""


def flushed_s(setting: Setting) -> float:
    """(M + N - 1)·T."""
    return (setting.microbatches + setting.stages - 1) * setting.round_s


def ways_s(setting: Setting) -> float:
    """2(N - 1)·C: the transfers of the fill and the drain."""
    return 2 * (setting.stages - 1) * setting.transfer_s


def sno_s(setting: Setting) -> float:
    """1F1B-SNO with fused exchanges."""
    n, m, transfer_s = setting.stages, setting.microbatches, setting.transfer_s
    if m == 1 or n == 1:
        return flushed_s(setting) + ways_s(setting)
    if n == 2:
        return flushed_s(setting) + (m + 1) * transfer_s
    longer_s = max(0.0, transfer_s - setting.forward_s) + max(0.0, transfer_s - setting.backward_s)
    return flushed_s(setting) + (2 * m + 2 * n - 5) * transfer_s + longer_s


def free(setting: Setting) -> bool:
    """Transfers take no time."""
    return setting.transfer_s == 0


def short(setting: Setting) -> bool:
    """A transfer is no longer than a forward or a backward."""
    return setting.transfer_s <= min(setting.forward_s, setting.backward_s)


def hidden(setting: Setting) -> bool:
    """And both ways are no longer than forward and backward together."""
    return short(setting) and 2 * setting.transfer_s <= setting.round_s


def even(setting: Setting) -> bool:
    """Forward, input gradient and weight gradient take as long, and there are micro-batches enough."""
    return free(setting) and 2 * setting.forward_s == setting.backward_s and filled(setting)


def filled(setting: Setting) -> bool:
    """M ≥ 2N - 1."""
    return setting.microbatches >= 2 * setting.stages - 1


def divided(setting: Setting) -> bool:
    """N divides M."""
    return setting.microbatches % setting.stages == 0


def work_s(setting: Setting) -> float:
    """M·T."""
    return setting.microbatches * setting.round_s


def fbp_s(setting: Setting) -> float:
    """FBP-AS, stored and forwarded or cut through."""
    n, m, g = setting.stages, setting.microbatches, setting.chunks
    if g == 1:
        return (m + 2 * n - 1) * setting.round_s
    return (m + 1) * setting.round_s + 2 * (n - 1) * setting.round_s / g


def replicated_s(setting: Setting) -> float:
    """Data parallelism: every device executes its share of the micro-batches, each of the whole model."""
    return -(-setting.microbatches // setting.stages) * setting.stages * setting.round_s


def gpipe_s(setting: Setting) -> float:
    """GPipe and, as it hides the same, 1F1B-SO."""
    return flushed_s(setting) + ways_s(setting)


def cut_through_s(setting: Setting) -> float:
    """1F1B-AS."""
    return work_s(setting) + (setting.stages - 1) * setting.round_s / setting.chunks


def endless_s(setting: Setting) -> float:
    """The period of asynchronous 1F1B: a round trip over all stages brings N micro-batches."""
    n = setting.stages
    return setting.microbatches * (setting.round_s + 2 * setting.transfer_s * (n - 1) / n)


def interleaved_s(setting: Setting) -> float:
    """Interleaved 1F1B, of forwards and backwards a V-th as long."""
    rounds = setting.microbatches * CHUNKS_A_DEVICE + setting.stages - 1
    return rounds * setting.round_s / CHUNKS_A_DEVICE


def zb_h1_s(setting: Setting) -> float:
    """ZB-H1, I = W = B/2."""
    return work_s(setting) + (setting.stages - 1) * setting.forward_s


def zb_h2_s(setting: Setting) -> float:
    """ZB-H2, I = W = B/2."""
    return work_s(setting) + (setting.stages - 1) * max(setting.forward_s, setting.forward_s - setting.backward_s / 2)


def zb_v_s(setting: Setting) -> float:
    """ZB-V, whose chunks take half as long."""
    return work_s(setting) + (setting.stages - 1) * setting.forward_s / 2
