import pytest

from bapipe.cost.capacity import memory_limit_bytes
from bapipe.cost.pipeline import CostTable, pipeline_cost, stage_loads_s
from bapipe.problem import Cluster, Device, DeviceKind, Edge, Layer, LayerTime, Link, Links, PairLink, PlanRequest
from judges.instances import cluster, even_request, layer, request

LINK = Link(bandwidth_bytes_per_s=4.0, latency_s=0.5)


def skipping_request(**fields):
    layers = [layer("a", output_bytes_per_sample=1.0), layer("b", output_bytes_per_sample=2.0), layer("c")]
    edges = (Edge(source="a", target="b"), Edge(source="a", target="c"), Edge(source="b", target="c"))
    return request(layers, cluster(3, LINK), 8, edges=edges, **fields)


def test_a_tensor_with_late_readers_crosses_every_cut_on_its_way_once():
    cost = pipeline_cost(skipping_request(), [["a"], ["b"], ["c"]], [["d0"], ["d1"], ["d2"]], 4)
    assert [boundary.size_bytes for boundary in cost.boundaries] == [4.0, 12.0]
    assert [boundary.forward_s for boundary in cost.boundaries] == [1.5, 3.5]
    assert [boundary.backward_s for boundary in cost.boundaries] == [1.5, 3.5]
    assert [(b.source, b.target) for b in cost.boundaries] == [("d0", "d1"), ("d1", "d2")]


def test_device_speed_divides_times():
    asked = even_request(2, 1)
    fast = asked.cluster.devices[0].model_copy(update={"speed": 4.0})
    devices = (fast, asked.cluster.devices[1])
    asked = asked.model_copy(update={"cluster": asked.cluster.model_copy(update={"devices": devices})})
    cost = pipeline_cost(asked, [["l0"], ["l1"]], [["d0"], ["d1"]], 1)
    assert [(stage.forward_s, stage.backward_s) for stage in cost.stages] == [(0.25, 0.5), (1.0, 2.0)]


def test_inference_has_no_backward_no_buckets_and_no_optimizer_step():
    layers = [layer("a", parameter_bytes=100), layer("b", parameter_bytes=100)]
    devices = cluster(2, LINK, memory_bandwidth_bytes_per_s=1.0)
    asked = request(layers, devices, 2, task="inference")
    stage = pipeline_cost(asked, [["a", "b"]], [["d0", "d1"]], 1).stages[0]
    assert (stage.forward_s, stage.backward_s, stage.buckets) == (2.0, 0.0, ())
    assert [replica.optimizer_s for replica in stage.replicas] == [0.0, 0.0]


def test_an_optimizer_step_reads_and_writes_weights_and_state_and_reads_gradients():
    layers = [layer("a", parameter_bytes=40, gradient_bytes=20, master_weight_bytes=80)]
    devices = cluster(1, memory_bandwidth_bytes_per_s=2.0)
    cost = pipeline_cost(request(layers, devices, 1, optimizer_bytes_per_parameter=8), [["a"]], [["d0"]], 1)
    assert cost.stages[0].replicas[0].optimizer_s == (2 * (40 + 80 + 80) + 20) / 2


def test_a_bucket_is_ready_when_the_backward_of_its_first_layer_ends():
    layers = [layer("a", 1.0, 4.0, parameter_bytes=8), layer("b", 1.0, 2.0), layer("c", 1.0, 1.0, parameter_bytes=8)]
    asked = request(layers, cluster(2, LINK), 2, gradient_bucket_bytes=8)
    stage = pipeline_cost(asked, [["a", "b", "c"]], [["d0", "d1"]], 1).stages[0]
    assert [replica.bucket_ready_s for replica in stage.replicas] == [(1.0, 7.0)] * 2
    assert [(b.size_bytes, b.all_reduce_s) for b in stage.buckets] == [(8.0, 2 * (0.5 + 1.0))] * 2


def test_replicas_of_different_kinds_keep_their_own_times():
    times = [
        LayerTime(device_kind=kind, microbatch_size=1, forward_s=t, backward_s=2 * t)
        for kind, t in (("x", 1.0), ("y", 3.0))
    ]
    asked = PlanRequest(
        profile={"name": "p", "layers": (Layer(id="a", times=tuple(times)),)},
        cluster=Cluster(
            kinds=(DeviceKind(name="x"), DeviceKind(name="y")),
            devices=(Device(id="d0", kind="x"), Device(id="d1", kind="y")),
        ),
        batch_size=2,
    )
    stage = pipeline_cost(asked, [["a"]], [["d0", "d1"]], 1).stages[0]
    assert [replica.forward_s for replica in stage.replicas] == [1.0, 3.0]
    assert (stage.forward_s, stage.backward_s) == (3.0, 6.0)


@pytest.mark.parametrize(
    ("communication", "expected"),
    [("none", (12.0, 12.0, 12.0)), ("overlap", (12.0, 12.0, 12.0)), ("serial", (15.0, 22.0, 19.0))],
)
def test_loads_count_both_ways_over_both_cuts(communication, expected):
    cost = pipeline_cost(skipping_request(), [["a"], ["b"], ["c"]], [["d0"], ["d1"], ["d2"]], 4)
    assert stage_loads_s(cost, communication) == expected


def test_overlapped_transfers_bind_once_they_take_longer_than_compute():
    layers = [layer("a", 1.0, 1.0, output_bytes_per_sample=8.0), layer("b", 1.0, 1.0)]
    cost = pipeline_cost(request(layers, cluster(2, LINK), 1), [["a"], ["b"]], [["d0"], ["d1"]], 1)
    assert stage_loads_s(cost, "overlap") == (5.0, 5.0)


def test_replicas_share_the_load():
    asked = even_request(2, 2)
    assert stage_loads_s(pipeline_cost(asked, [["l0", "l1"]], [["d0", "d1"]], 1), "overlap") == (3.0,)


def test_a_table_costs_many_partitions_alike():
    asked = skipping_request()
    table = CostTable(asked, 2)
    for stages in ([["a"], ["b", "c"]], [["a", "b"], ["c"]]):
        assert table.pipeline(stages, [["d0"], ["d1"]]) == pipeline_cost(asked, stages, [["d0"], ["d1"]], 2)


def test_between_replicated_stages_the_slowest_link_counts():
    links = Links(
        within_host=Link(bandwidth_bytes_per_s=8.0),
        pairs=(PairLink(devices=("d0", "d2"), link=Link(bandwidth_bytes_per_s=2.0)),),
    )
    layers = [layer("a", output_bytes_per_sample=8.0), layer("b")]
    asked = request(layers, cluster(3).model_copy(update={"links": links}), 2)
    cost = pipeline_cost(asked, [["a"], ["b"]], [["d0"], ["d1", "d2"]], 1)
    assert cost.boundaries[0].forward_s == 4.0


def test_a_device_has_its_own_memory_before_that_of_its_kind():
    devices = cluster(1, memory_bytes=100)
    own = devices.devices[0].model_copy(update={"memory_bytes": 50})
    assert memory_limit_bytes(devices, devices.devices[0]) == 100
    assert memory_limit_bytes(devices, own) == 50
