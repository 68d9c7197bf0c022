"""VGG-16 for 224 × 224 images: Simonyan and Zisserman, arXiv 1409.1556, table 1, configuration D."""

from __future__ import annotations

from bapipe.examples.images import Map, conv, dropout, linear, max_pool, relu
from bapipe.examples.kernels import Work, network
from bapipe.problem import ModelProfile

BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
CLASSES = 1000


def vgg16() -> ModelProfile:
    """16 weight layers with ReLU, pooling and dropout between them, as a chain; torchvision's numbering."""
    works: list[Work] = []
    shape = Map(3, 224)
    for channels in BLOCKS:
        for width in channels:
            first = not works
            work, shape = conv(_name(works), shape, width, 3, padding=1, bias=True, kept=False, first=first)
            works.append(work)
            works.append(relu(_name(works), shape.elements))
        work, shape = max_pool(_name(works), shape, 2, stride=2)
        works.append(work)
    works += _classifier(shape.elements)
    return network("vgg16", works, __doc__ or "")


def _name(works: list[Work]) -> str:
    return f"features.{len(works)}"


def _classifier(inputs: int) -> list[Work]:
    return [
        linear("classifier.0", inputs, 4096, kept=False),
        relu("classifier.1", 4096),
        dropout("classifier.2", 4096),
        linear("classifier.3", 4096, 4096, kept=False),
        relu("classifier.4", 4096),
        dropout("classifier.5", 4096),
        linear("classifier.6", 4096, CLASSES),
    ]
