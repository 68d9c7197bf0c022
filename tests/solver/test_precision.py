"""A profile in half precision holds half the bytes, and no times of another."""

from __future__ import annotations

from bapipe.examples import load_example
from bapipe.precision import at_precision


def test_half_precision_halves_every_byte() -> None:
    whole, half = load_example("gnmt8"), at_precision(load_example("gnmt8"), "fp16")
    assert half.bytes_per_parameter == 2
    assert not any(layer.times for layer in half.layers)
    for before, after in zip(whole.layers, half.layers, strict=True):
        assert after.parameter_bytes * 2 == before.parameter_bytes
        assert after.output_bytes_per_sample * 2 == before.output_bytes_per_sample
        assert (after.stash_bytes_per_sample or 0) * 2 == before.stash_bytes_per_sample
        assert after.operators == before.operators
    sized = [edge.bytes_per_sample for edge in half.edges or () if edge.bytes_per_sample]
    assert [2 * size for size in sized] == [e.bytes_per_sample for e in whole.edges or () if e.bytes_per_sample]


def test_the_same_precision_changes_no_byte() -> None:
    whole = load_example("vgg16")
    same = at_precision(whole, "fp32")
    assert [layer.parameter_bytes for layer in same.layers] == [layer.parameter_bytes for layer in whole.layers]
