"""NASNet-A (6 @ 4032) for 331 × 331 images: Zoph, Vasudevan, Shlens and Le, arXiv 1707.07012, figure 4 and appendix A.

A graph of cells, each of which reads the outputs of the two cells before it: about 1,200 layers, and far more ways to
cut them than can be enumerated. As in TensorFlow's implementation, every separable convolution is applied twice, the
two stem cells are reduction cells, and a left input of another size is halved by two shifted paths.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bapipe.examples.images import Map, add, average_pool, batch_norm, conv, dropout, linear, relu
from bapipe.examples.kernels import ELEMENT_BYTES, Work, network
from bapipe.examples.windows import average_window, concatenate, depthwise, max_window
from bapipe.problem import Edge, ModelProfile

STEM_FILTERS = 96
FILTERS = 168
CELLS = 6
GROUPS = 3
CLASSES = 1000


@dataclass(frozen=True)
class Tensor:
    """What a layer wrote."""

    layer: str
    shape: Map


@dataclass
class _Net:
    """The layers and edges so far."""

    works: list[Work] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def append(self, work: Work, shape: Map, *sources: Tensor) -> Tensor:
        """Adds a layer that reads `sources`; a tensor that it reads twice is one edge."""
        self.works.append(work)
        self.edges += [Edge(source=name, target=work.id) for name in dict.fromkeys(s.layer for s in sources)]
        return Tensor(work.id, shape)

    def relu(self, name: str, source: Tensor) -> Tensor:
        """Not in place: others read what it reads."""
        work = replace(relu(f"{name}.relu", source.shape.elements), kind="ReLU")
        return self.append(work, source.shape, source)

    def norm(self, name: str, source: Tensor, *, kept: bool = False) -> Tensor:
        """`kept`: an average pooling saves what it reads."""
        work = batch_norm(f"{name}.bn", source.shape)
        kept_bytes = source.shape.elements * ELEMENT_BYTES if kept else 0
        return self.append(replace(work, kept_bytes=kept_bytes), source.shape, source)

    def project(self, name: str, source: Tensor, filters: int) -> Tensor:
        """ReLU, 1 × 1 convolution, batch norm."""
        active = self.relu(name, source)
        work, shape = conv(f"{name}.conv", active.shape, filters, 1)
        return self.norm(name, self.append(work, shape, active), kept=True)

    def separable(self, name: str, source: Tensor, filters: int, kernel: int, stride: int = 1) -> Tensor:
        """Twice ReLU, depthwise and 1 × 1 convolution, batch norm; the first one strides."""
        tensor = source
        for half, step in ((f"{name}.1", stride), (f"{name}.2", 1)):
            active = self.relu(half, tensor)
            work, shape = depthwise(f"{half}.depthwise", active.shape, kernel, step)
            deep = self.append(work, shape, active)
            work, shape = conv(f"{half}.pointwise", shape, filters, 1)
            tensor = self.norm(half, self.append(work, shape, deep))
        return tensor

    def average(self, name: str, source: Tensor, kernel: int = 3, stride: int = 1) -> Tensor:
        """Average pooling that keeps the side but for its stride."""
        work, shape = average_window(name, source.shape, kernel, stride)
        return self.append(work, shape, source)

    def maximum(self, name: str, source: Tensor) -> Tensor:
        """Max pooling, 3 × 3, that halves the side."""
        work, shape = max_window(name, source.shape, 3, 2)
        return self.append(work, shape, source)

    def add(self, name: str, left: Tensor, right: Tensor) -> Tensor:
        """Their sum, in the place of neither."""
        return self.append(add(name, left.shape.elements), left.shape, left, right)

    def concatenate(self, name: str, *sources: Tensor) -> Tensor:
        """Their channels side by side."""
        shape = Map(sum(source.shape.channels for source in sources), sources[0].shape.side)
        return self.append(concatenate(name, shape), shape, *sources)

    def fit(self, name: str, before: Tensor, like: Tensor, filters: int) -> Tensor:
        """The output of the cell before the last, with so many channels and the side of the last cell's output."""
        if before.shape.side == like.shape.side:
            return self.project(name, before, filters)
        active = self.relu(name, before)
        halves = []
        for path in (1, 2):
            pooled = self.average(f"{name}.path{path}.pool", active, kernel=1, stride=2)
            work, shape = conv(f"{name}.path{path}.conv", pooled.shape, filters // 2, 1)
            halves.append(self.append(work, shape, pooled))
        return self.norm(name, self.concatenate(f"{name}.concat", *halves), kept=True)


def nasnet_large() -> ModelProfile:
    """Stem, then three groups of six normal cells with a reduction cell between two."""
    net = _Net()
    work, shape = conv("stem.conv", Map(3, 331), STEM_FILTERS, 3, stride=2, first=True)
    stem = net.norm("stem", net.append(work, shape))
    first = _stem_cell(net, stem)
    before, last = first, _reduction_cell(net, "stem2", stem, first, FILTERS // 2)
    filters = FILTERS
    for group in range(GROUPS):
        if group:
            filters *= 2
            last = _reduction_cell(net, f"reduction{group}", before, last, filters)
        for number in range(CELLS):
            width = filters // 2 if number == 0 else filters
            before, last = last, _normal_cell(net, f"cell{group * CELLS + number}", before, last, filters, width)
    _head(net, last)
    return network("nasnet-large", net.works, __doc__ or "", edges=net.edges)


def _head(net: _Net, last: Tensor) -> None:
    active = net.relu("head", last)
    pooled = Map(active.shape.channels, 1)
    tensor = net.append(average_pool("head.pool", active.shape), pooled, active)
    tensor = net.append(dropout("head.dropout", pooled.elements), pooled, tensor)
    net.append(linear("head.fc", pooled.channels, CLASSES), Map(CLASSES, 1), tensor)


def _normal_cell(net: _Net, name: str, before: Tensor, last: Tensor, filters: int, width: int) -> Tensor:
    """Figure 4, left. `width`: channels of either path by which a left input of another size is halved."""
    halved = before.shape.side != last.shape.side
    left = net.fit(f"{name}.left", before, last, 2 * width if halved else width)
    right = net.project(f"{name}.right", last, filters)
    sums = (
        net.add(
            f"{name}.0.add",
            net.separable(f"{name}.0.right", right, filters, 5),
            net.separable(f"{name}.0.left", left, filters, 3),
        ),
        net.add(
            f"{name}.1.add",
            net.separable(f"{name}.1.five", left, filters, 5),
            net.separable(f"{name}.1.three", left, filters, 3),
        ),
        net.add(f"{name}.2.add", net.average(f"{name}.2.pool", right), left),
        net.add(f"{name}.3.add", net.average(f"{name}.3.pool1", left), net.average(f"{name}.3.pool2", left)),
        net.add(f"{name}.4.add", net.separable(f"{name}.4.right", right, filters, 3), right),
    )
    return net.concatenate(f"{name}.concat", left, *sums)


def _stem_cell(net: _Net, stem: Tensor) -> Tensor:
    """The first reduction cell: there is no cell before the last, so its left input is the stem as it is."""
    filters = FILTERS // 4
    right = net.project("stem1.right", stem, filters)
    return _reduce(net, "stem1", stem, right, filters)


def _reduction_cell(net: _Net, name: str, before: Tensor, last: Tensor, filters: int) -> Tensor:
    left = net.fit(f"{name}.left", before, last, filters)
    return _reduce(net, name, left, net.project(f"{name}.right", last, filters), filters)


def _reduce(net: _Net, name: str, left: Tensor, right: Tensor, filters: int) -> Tensor:
    """Figure 4, right."""
    first = net.add(
        f"{name}.0.add",
        net.separable(f"{name}.0.right", right, filters, 5, 2),
        net.separable(f"{name}.0.left", left, filters, 7, 2),
    )
    second = net.add(
        f"{name}.1.add",
        net.maximum(f"{name}.1.pool", right),
        net.separable(f"{name}.1.left", left, filters, 7, 2),
    )
    third = net.add(
        f"{name}.2.add",
        net.average(f"{name}.2.pool", right, stride=2),
        net.separable(f"{name}.2.left", left, filters, 5, 2),
    )
    fourth = net.add(f"{name}.3.add", net.average(f"{name}.3.pool", first), second)
    fifth = net.add(
        f"{name}.4.add", net.separable(f"{name}.4.first", first, filters, 3), net.maximum(f"{name}.4.pool", right)
    )
    return net.concatenate(f"{name}.concat", second, third, fourth, fifth)
