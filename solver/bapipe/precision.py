"""A profile in numbers of another size: an FPGA's design chooses its own."""

from __future__ import annotations

from bapipe.cost.fpga.arrays import ELEMENT_BYTES
from bapipe.problem import DType, Edge, Layer, ModelProfile


def at_precision(profile: ModelProfile, dtype: DType) -> ModelProfile:
    """`profile` with weights, gradients and activations of type `dtype`, and without its times, which are of another.

    Every byte is scaled by the size of an element, masks and indices with the rest.
    """
    size = ELEMENT_BYTES[dtype]
    ratio = size / profile.bytes_per_parameter
    return profile.model_copy(
        update={
            "layers": tuple(_layer(layer, ratio) for layer in profile.layers),
            "edges": None if profile.edges is None else tuple(_edge(edge, ratio) for edge in profile.edges),
            "tied_parameters": tuple(
                tied.model_copy(update={"parameter_bytes": round(tied.parameter_bytes * ratio)})
                for tied in profile.tied_parameters
            ),
            "bytes_per_parameter": size,
            "warnings": (*profile.warnings, f"sizes are scaled to {dtype}"),
        }
    )


def _layer(layer: Layer, ratio: float) -> Layer:
    whole = ("parameter_bytes", "gradient_bytes", "master_weight_bytes", "workspace_bytes")
    parts = ("output_bytes_per_sample", "stash_bytes_per_sample", "recompute_stash_bytes_per_sample")
    scaled: dict[str, object] = {"times": (), "options": ()}
    for name in (*whole, *parts, "kv_bytes_per_token"):
        value = getattr(layer, name)
        scaled[name] = None if value is None else round(value * ratio) if name in whole else value * ratio
    return layer.model_copy(update=scaled)


def _edge(edge: Edge, ratio: float) -> Edge:
    if edge.bytes_per_sample is None:
        return edge
    return edge.model_copy(update={"bytes_per_sample": edge.bytes_per_sample * ratio})
