"""Observations of all layers at all micro-batch sizes as a `ModelProfile`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from torch import nn

from bapipe.cost.compute import proportional_times
from bapipe.problem import Edge, Layer, LayerTime, ModelProfile, TiedParameters
from bapipe_executor.layered_model import LayeredModel, source_of
from bapipe_executor.profiling.sweep import LayerObservation

Observations = Mapping[int, Mapping[str, LayerObservation]]
"""By micro-batch size, then by layer."""

LARGEST_KIND = 200
PROPORTIONAL = 0.01
"""A smaller share of the stash that does not grow with the micro-batch is not worth a warning."""


def model_profile(
    name: str, model: LayeredModel, observed: Observations, device_kind: str, source: str, warnings: list[str]
) -> ModelProfile:
    """The profile. Bytes per sample are the most over all sizes, work space and FLOPs those of the largest."""
    tied = _tied_parameters(model)
    tied_ids = {id(parameter) for parameter, _ in tied}
    element_bytes = sorted({parameter.element_size() for parameter in model.parameters()})
    warnings = [*warnings, *_size_warnings(observed)]
    if len(element_bytes) > 1:
        warnings.append(
            f"parameters have {element_bytes} bytes each; optimizer state is counted as of {_widest(model)}"
        )
    return ModelProfile(
        name=name,
        layers=tuple(_layer(each, model.layer(each), observed, device_kind, tied_ids) for each in model.names),
        edges=tuple(_edges(model, observed)),
        bytes_per_parameter=_widest(model),
        tied_parameters=tuple(
            TiedParameters(layers=layers, parameter_bytes=parameter.nbytes) for parameter, layers in tied
        ),
        source=source,
        warnings=tuple(warnings),
    )


def _layer(name: str, module: nn.Module, observed: Observations, device_kind: str, tied_ids: set[int]) -> Layer:
    points = {size: layers[name] for size, layers in sorted(observed.items())}
    largest = max(points)
    own = [parameter for parameter in module.parameters() if id(parameter) not in tied_ids]
    parameter_bytes = sum(parameter.nbytes for parameter in own)
    gradient_bytes = sum(parameter.nbytes for parameter in own if parameter.requires_grad)
    return Layer(
        id=name,
        kind=_described(module),
        times=tuple(_time(device_kind, size, point) for size, point in points.items()),
        forward_flops_per_sample=points[largest].flops / largest,
        parameter_bytes=parameter_bytes,
        gradient_bytes=None if gradient_bytes == parameter_bytes else gradient_bytes,
        output_bytes_per_sample=max(sum(point.output_bytes) / size for size, point in points.items()),
        stash_bytes_per_sample=max(point.stash_bytes / size for size, point in points.items()),
        workspace_bytes=points[largest].workspace_bytes,
    )


def _time(device_kind: str, size: int, point: LayerObservation) -> LayerTime:
    seconds = point.seconds
    return LayerTime(
        device_kind=device_kind,
        microbatch_size=size,
        forward_s=seconds.forward_s,
        backward_s=seconds.backward_s,
        input_gradient_s=seconds.input_gradient_s,
        weight_gradient_s=seconds.backward_s - seconds.input_gradient_s,
    )


def _described(module: nn.Module) -> str:
    """The line of one of torch's own modules, such as `Conv2d(3, 64, kernel_size=(3, 3))`; the class of any other."""
    if type(module).__module__.startswith("torch.nn.modules") and not any(module.children()):
        return repr(module).replace("\n", " ")[:LARGEST_KIND]
    return type(module).__name__


def _edges(model: LayeredModel, observed: Observations) -> Iterator[Edge]:
    """A layer that makes a tuple sends the tensors of it that are read; any other the tensor that it makes."""
    seen: set[tuple[str, str, int | None]] = set()
    for target in model.names:
        for read in model.reads[target]:
            source, number = source_of(read)
            if source in model.inputs:
                continue
            parts = len(next(iter(observed.values()))[source].output_bytes)
            for part in [None] if parts == 1 else range(parts) if number is None else [number]:
                if (source, target, part) not in seen:
                    seen.add((source, target, part))
                    yield _edge(source, target, part, observed)


def _edge(source: str, target: str, part: int | None, observed: Observations) -> Edge:
    if part is None:
        return Edge(source=source, target=target)
    per_sample = max(layers[source].output_bytes[part] / size for size, layers in observed.items())
    return Edge(source=source, target=target, bytes_per_sample=per_sample, tensor=str(part))


def _tied_parameters(model: LayeredModel) -> list[tuple[nn.Parameter, tuple[str, ...]]]:
    """Parameters of several layers, with the names of those layers."""
    owners: dict[nn.Parameter, list[str]] = defaultdict(list)
    for name in model.names:
        for parameter in dict.fromkeys(model.layer(name).parameters()):
            owners[parameter].append(name)
    return [(parameter, tuple(names)) for parameter, names in owners.items() if len(names) > 1]


def _widest(model: LayeredModel) -> int:
    """Bytes of the type of parameter that most bytes are of."""
    total: dict[int, int] = defaultdict(int)
    for parameter in model.parameters():
        total[parameter.element_size()] += parameter.nbytes
    return max(total, key=lambda size: total[size], default=4)


def _size_warnings(observed: Observations) -> Iterator[str]:
    if len(observed) == 1:
        yield proportional_times(next(iter(observed)))
    constant = {name: _constant_stash(name, observed) for name in next(iter(observed.values()))}
    largest = observed[max(observed)]
    if sum(constant.values()) > PROPORTIONAL * sum(seen.stash_bytes for seen in largest.values()):
        names = sorted(constant, key=lambda name: constant[name], reverse=True)
        uneven = [name for name in names if constant[name]]
        yield (
            f"kept for the backward, but not in proportion to the micro-batch, by {_some(uneven)}: "
            "the most per sample is taken"
        )


def _constant_stash(name: str, observed: Observations) -> float:
    """By how many bytes the stash at the largest micro-batch is overstated."""
    size = max(observed)
    most = max(layers[name].stash_bytes / each for each, layers in observed.items())
    return size * most - observed[size][name].stash_bytes


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more layers"
