"""ResNet-50 for 224 × 224 images: He, Zhang, Ren and Sun, arXiv 1512.03385, table 1, with the stride of a block in its
3 × 3 convolution (version 1.5, as in torchvision).
"""

from __future__ import annotations

from bapipe.examples.images import Map, add, average_pool, batch_norm, conv, linear, max_pool, relu
from bapipe.examples.kernels import Work, network
from bapipe.problem import Edge, ModelProfile

GROUPS = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4
CLASSES = 1000


class _Net:
    """The layers and edges so far; `last` is the layer that the next one reads."""

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.edges: list[Edge] = []
        self.last = ""
        self.shape = Map(3, 224)

    def append(self, work: Work, *sources: str) -> None:
        """Adds a layer that reads `sources`, or the last layer when none is given."""
        for source in sources or ((self.last,) if self.last else ()):
            self.edges.append(Edge(source=source, target=work.id))
        self.works.append(work)
        self.last = work.id

    def conv_norm(self, names: tuple[str, str], channels: int, kernel: int, stride: int = 1) -> None:
        """A convolution without bias, padded to keep the side but for its stride, and its batch norm."""
        padding, first = kernel // 2, not self.works
        work, self.shape = conv(names[0], self.shape, channels, kernel, stride=stride, padding=padding, first=first)
        self.append(work)
        self.append(batch_norm(names[1], self.shape))


def resnet50() -> ModelProfile:
    """Four groups of bottleneck blocks; each block's input is also an edge to its addition."""
    net = _Net()
    net.conv_norm(("conv1", "bn1"), 64, 7, stride=2)
    net.append(relu("relu", net.shape.elements))
    pool, net.shape = max_pool("maxpool", net.shape, 3, stride=2, padding=1)
    net.append(pool)
    for number, (width, blocks) in enumerate(GROUPS, start=1):
        for block in range(blocks):
            _bottleneck(net, f"layer{number}.{block}", width, stride=2 if block == 0 and number > 1 else 1)
    net.append(average_pool("avgpool", net.shape))
    net.append(linear("fc", net.shape.channels, CLASSES))
    return network("resnet50", net.works, __doc__ or "", edges=net.edges)


def _bottleneck(net: _Net, name: str, width: int, stride: int) -> None:
    source, shape = net.last, net.shape
    net.conv_norm((f"{name}.conv1", f"{name}.bn1"), width, 1)
    net.append(relu(f"{name}.relu1", net.shape.elements))
    net.conv_norm((f"{name}.conv2", f"{name}.bn2"), width, 3, stride)
    net.append(relu(f"{name}.relu2", net.shape.elements))
    net.conv_norm((f"{name}.conv3", f"{name}.bn3"), EXPANSION * width, 1)
    main = net.last
    if shape != net.shape:
        net.last, net.shape = source, shape
        net.conv_norm((f"{name}.downsample.0", f"{name}.downsample.1"), EXPANSION * width, 1, stride)
        source = net.last
    net.append(add(f"{name}.add", net.shape.elements), main, source)
    net.append(relu(f"{name}.relu3", net.shape.elements))
