"""Plans by hand, for a model, a partition and orders; their times are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bapipe.faults import parse
from bapipe.plan import Plan
from bapipe_executor.layered_model import LayeredModel

LAYER_S = 1e-3


def make_plan(
    model: LayeredModel,
    stages: Sequence[Sequence[str]],
    ranks: Sequence[Sequence[int]],
    orders: Sequence[Sequence[str]],
    num_microbatches: int,
    *,
    microbatch_size: int = 2,
    name: str = "custom",
    recomputed: Mapping[int, Sequence[str]] | None = None,
    **request: Any,
) -> Plan:
    """A plan with `ranks[s]` for stage s, and an order for each rank."""
    recomputed = recomputed or {}
    return parse(
        Plan,
        {
            "status": "feasible",
            "request": {
                "profile": profile_of(model, microbatch_size),
                "cluster": {
                    "kinds": [{"name": "reference"}],
                    "devices": [{"id": f"d{rank}", "kind": "reference"} for rank in range(len(orders))],
                },
                "batch_size": num_microbatches * microbatch_size,
                "recomputation": "allowed",
                **request,
            },
            "stages": [
                {
                    "index": s,
                    "layers": list(layers),
                    "devices": [f"d{rank}" for rank in ranks[s]],
                    "recomputed_layers": list(recomputed.get(s, ())),
                    "forward_s": LAYER_S * len(layers),
                    "backward_s": 2 * LAYER_S * len(layers),
                    "load_s": 3 * LAYER_S * len(layers),
                    "peak_memory_bytes": 0.0,
                    "memory_limit_bytes": None,
                }
                for s, layers in enumerate(stages)
            ],
            "schedule": {
                "name": name,
                "num_microbatches": num_microbatches,
                "microbatch_size": microbatch_size,
                "orders": [list(order) for order in orders],
            },
            "prediction": {
                "step_time_s": 1.0,
                "period_s": 1.0,
                "bottleneck_s": 1.0,
                "samples_per_s": 1.0,
                "bubble_fraction": 0.0,
                "devices": [],
            },
            "proof": {
                "lower_bound_s": None,
                "gap": None,
                "scope": "candidates",
                "scope_detail": "by hand",
                "solver": "none",
                "tolerance": 0.0,
                "wall_s": 0.0,
            },
        },
    )


def profile_of(model: LayeredModel, microbatch_size: int) -> dict[str, Any]:
    """The layers of a model and what they read, each as long as the others."""
    time = {
        "device_kind": "reference",
        "microbatch_size": microbatch_size,
        "forward_s": LAYER_S,
        "backward_s": 2 * LAYER_S,
        "input_gradient_s": LAYER_S,
        "weight_gradient_s": LAYER_S,
    }
    edges = dict.fromkeys(
        (read.partition(":")[0], layer)
        for layer, reads in model.reads.items()
        for read in reads
        if read not in model.inputs
    )
    return {
        "name": "by hand",
        "layers": [{"id": name, "times": [time], "output_bytes_per_sample": 8.0} for name in model.names],
        "edges": [{"source": source, "target": target} for source, target in edges],
    }


def cut(model: LayeredModel, parts: Sequence[float]) -> list[tuple[str, ...]]:
    """The layers in as many stages as there are `parts`, which say how many each has beside the others."""
    names, total = model.names, sum(parts)
    ends: list[int] = []
    seen = 0.0
    for number, part in enumerate(parts):
        seen += part
        least, most = number + 1, len(names) - (len(parts) - number - 1)
        ends.append(min(max(round(len(names) * seen / total), least, (ends[-1] + 1) if ends else 1), most))
    return [names[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
