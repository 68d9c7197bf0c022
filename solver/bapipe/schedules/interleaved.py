"""Interleaved 1F1B: every device has V chunks of the model, and stage c·N + d is chunk c of device d.

Micro-batches go in groups of N: a device executes a chunk for the N micro-batches of a group, then the next chunk. So
N divides M. The bubble is V times shorter than that of 1F1B, for V times as many transfers.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", arXiv 2104.04473.
"""

from __future__ import annotations

from bapipe.schedules.base import in_turn


def interleaved_orders(num_devices: int, num_microbatches: int, num_chunks: int) -> tuple[tuple[str, ...], ...]:
    """The order of each device.

    Raises:
        ValueError: the number of devices does not divide that of micro-batches.
    """
    if num_microbatches % num_devices:
        raise ValueError(f"{num_devices} devices do not divide {num_microbatches} micro-batches")
    return tuple(_order(device, num_devices, num_microbatches, num_chunks) for device in range(num_devices))


def _order(device: int, num_devices: int, num_microbatches: int, num_chunks: int) -> tuple[str, ...]:
    count = num_microbatches * num_chunks
    places = [divmod(number, num_devices * num_chunks) for number in range(count)]
    forwards, backwards = [], []
    for group, place in places:
        chunk, microbatch = place // num_devices, group * num_devices + place % num_devices
        forwards.append(f"{chunk * num_devices + device}F{microbatch}")
        backwards.append(f"{(num_chunks - 1 - chunk) * num_devices + device}B{microbatch}")
    warm_up = 2 * (num_devices - device - 1) + (num_chunks - 1) * num_devices
    return in_turn(forwards, backwards, count if num_microbatches == num_devices else warm_up)
