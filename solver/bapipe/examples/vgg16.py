"""VGG-16 for 224 × 224 images: Simonyan and Zisserman, arXiv 1409.1556, table 1, configuration D."""

from __future__ import annotations

from itertools import pairwise

from bapipe.examples.images import Map, concatenation, conv, dropout, linear, max_pool, relu
from bapipe.examples.kernels import Work, network
from bapipe.problem import Edge, ModelProfile

BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
CLASSES = 1000
HIDDEN = 4096


def vgg16(parts: int = 1) -> ModelProfile:
    """16 weight layers with ReLU, pooling and dropout between them, as a chain; torchvision's numbering.

    With several `parts`, which divide 4,096, the first linear layer is as many, each of which makes some of its outputs
    (`classifier.0.part0`, …), and one that joins them.
    """
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
    place, classifier = len(works), _classifier(shape.elements)
    if parts == 1:
        return network("vgg16", [*works, *classifier], __doc__ or "")
    works += [*_parts(shape.elements, parts), concatenation("classifier.0", HIDDEN), *classifier[1:]]
    return network("vgg16", works, __doc__ or "", edges=_edges([work.id for work in works], place, parts))


def _parts(inputs: int, parts: int) -> list[Work]:
    return [linear(f"classifier.0.part{k}", inputs, HIDDEN // parts, kept=False) for k in range(parts)]


def _edges(names: list[str], place: int, parts: int) -> list[Edge]:
    """A chain, but for the `parts` layers from `place` on, which all read what is before them, and are all joined."""
    middle = names[place : place + parts]
    pairs = [*pairwise(names[:place]), *pairwise(names[place + parts :])]
    pairs += [(names[place - 1], part) for part in middle] + [(part, names[place + parts]) for part in middle]
    return [Edge(source=source, target=target) for source, target in pairs]


def _name(works: list[Work]) -> str:
    return f"features.{len(works)}"


def _classifier(inputs: int) -> list[Work]:
    return [
        linear("classifier.0", inputs, HIDDEN, kept=False),
        relu("classifier.1", HIDDEN),
        dropout("classifier.2", HIDDEN),
        linear("classifier.3", HIDDEN, HIDDEN, kept=False),
        relu("classifier.4", HIDDEN),
        dropout("classifier.5", HIDDEN),
        linear("classifier.6", HIDDEN, CLASSES),
    ]
