"""Random chains and data parallelism, with links that keep apart: what one sweep can replay."""

from __future__ import annotations

from hypothesis import strategies as st

from bapipe.problem import Edge, Link
from judges.instances import cluster, layer, request, split

PIPELINES = ("gpipe", "1f1b", "1f1b-so")
LINK = Link(bandwidth_bytes_per_s=8.0, latency_s=0.125)


@st.composite
def instances(draw):
    """A request over unequal layers, its stages, a schedule and a micro-batch count."""
    name = draw(st.sampled_from((*PIPELINES, "data-parallel")))
    num_devices = draw(st.integers(1, 4))
    num_layers = draw(st.integers(num_devices, 7))
    count, size = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    seconds = st.floats(0.0, 10.0).filter(lambda x: x == 0 or x > 1e-6)
    sizes = st.integers(0, 1000)
    layers = [
        layer(
            f"l{k}",
            draw(seconds),
            draw(seconds),
            parameter_bytes=draw(sizes) * 4,
            gradient_bytes=draw(st.none() | sizes),
            master_weight_bytes=draw(sizes),
            output_bytes_per_sample=float(draw(sizes)),
            stash_bytes_per_sample=draw(st.none() | sizes.map(float)),
            workspace_bytes=draw(sizes),
        )
        for k in range(num_layers)
    ]
    link = Link(
        bandwidth_bytes_per_s=draw(st.none() | st.floats(10.0, 1e4)), latency_s=draw(st.sampled_from((0.0, 0.5)))
    )
    devices = cluster(
        num_devices,
        link,
        memory_bandwidth_bytes_per_s=draw(st.none() | st.just(1e3)),
        reserved_bytes=draw(sizes),
        receive_buffers=draw(st.sampled_from(("all", "in_flight"))),
    )
    chain = [Edge(source=f"l{k}", target=f"l{k + 1}") for k in range(num_layers - 1)]
    skips = draw(st.sets(st.tuples(st.integers(0, num_layers - 1), st.integers(0, num_layers - 1))))
    chain += [Edge(source=f"l{a}", target=f"l{b}") for a, b in sorted(skips) if b > a + 1]
    asked = request(
        layers,
        devices,
        count * size,
        edges=draw(st.sampled_from((None, tuple(chain)))),
        task="training" if name == "data-parallel" else draw(st.sampled_from(("training", "training", "inference"))),
        optimizer_bytes_per_parameter=draw(st.sampled_from((0, 4, 8))),
        gradient_bucket_bytes=draw(st.integers(1, 5000)),
    )
    cuts = sorted(draw(st.permutations(range(1, num_layers)))[: num_devices - 1])
    parts = [end - start for start, end in zip([0, *cuts], [*cuts, num_layers], strict=True)]
    stages = split(asked, [num_layers] if name == "data-parallel" else parts)
    return asked, stages, name, count, draw(st.sampled_from(("overlapped", "blocking")))
