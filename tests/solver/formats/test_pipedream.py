"""PipeDream graphs: units, tensors, what is left out, and what each malformed line says."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bapipe.errors import FormatError, InvalidInputError
from bapipe.formats import load_profile, parse_profile
from bapipe.problem import Edge, ModelProfile

SHARED = Path(__file__).parents[4] / "shared"
GRAPHS = sorted((SHARED / "data" / "pipedream").glob("*.graph.txt"))
BATCHES = {"gnmt": 32}


def node(
    name: str,
    what: str = "Conv2d",
    forward: object = 1.0,
    backward: object = 2.0,
    size: object = 8.0,
    weights: object = 4,
) -> str:
    return (
        f"{name} -- {what} -- forward_compute_time={forward}, backward_compute_time={backward}, "
        f"activation_size={size}, parameter_size={weights}"
    )


def edge(source: str, target: str) -> str:
    return f"\t{source} -- {target}"


def read(*lines: str, batch: int = 2) -> ModelProfile:
    return parse_profile("\n".join(lines), format="pipedream", profile_batch=batch, name="net")


def faults(*lines: str) -> list[tuple[str, str]]:
    with pytest.raises(FormatError) as caught:
        read(*lines)
    return [(fault.pointer, fault.code) for fault in caught.value.faults]


def cut_bytes(profile: ModelProfile, inside: set[str]) -> float:
    """Bytes per sample over a cut, counted on its own: each tensor of a layer inside with a reader outside, once."""
    outputs = {layer.id: layer.output_bytes_per_sample for layer in profile.layers}
    tensors: dict[tuple[str, str | None], float] = {}
    for each in profile.edges or ():
        if each.source in inside and each.target not in inside:
            size = outputs[each.source] if each.bytes_per_sample is None else each.bytes_per_sample
            tensors[each.source, each.tensor] = size
    return sum(tensors.values())


def test_milliseconds_and_batch_bytes_become_seconds_and_bytes_per_sample() -> None:
    profile = read(node("node1", "Conv2d(3, 64)", 4.423, 7.197, 44302336.0, 3539968.0), batch=128)
    (layer,) = profile.layers
    (time,) = layer.times
    assert (layer.id, layer.kind) == ("node1", "Conv2d(3, 64)")
    assert (time.device_kind, time.microbatch_size) == ("reference", 128)
    assert (time.forward_s, time.backward_s) == pytest.approx((4.423e-3, 7.197e-3))
    assert layer.output_bytes_per_sample == layer.stash_bytes_per_sample == 44302336 / 128
    assert layer.parameter_bytes == 3539968


def test_layers_come_by_node_number_whatever_the_order_of_the_lines() -> None:
    profile = read(node("node10"), node("node9"), node("node2"), edge("node10", "node9"), edge("node2", "node10"))
    assert [layer.id for layer in profile.layers] == ["node2", "node9", "node10"]


def test_ids_without_a_number_come_last() -> None:
    assert [layer.id for layer in read(node("b"), node("a"), node("node3")).layers] == ["node3", "a", "b"]


def test_an_input_that_carries_time_is_left_out_with_a_warning() -> None:
    profile = read(node("node1", "Input", 635.902, 0.0), node("node2"), edge("node1", "node2"))
    assert [layer.id for layer in profile.layers] == ["node2"]
    assert profile.edges == ()
    assert any("node1" in warning and "635.902 ms" in warning for warning in profile.warnings)


def test_an_input_without_time_is_left_out_in_silence() -> None:
    profile = read(node("node1", "Input0", 0, 0, 8, 0), node("node2"), edge("node1", "node2"))
    assert len(profile.layers) == 1
    assert not any("node1" in warning for warning in profile.warnings)


def test_a_node_called_input_in_the_middle_stays() -> None:
    profile = read(node("node1"), node("node2", "InputNorm"), edge("node1", "node2"))
    assert len(profile.layers) == 2


def test_get_item_nodes_that_nothing_reads_are_left_out_one_after_the_other() -> None:
    profile = read(
        node("node1", "LSTM", size="[6; 4]"),
        node("node2", "__getitem__(0)", 0, 0, 6, 0),
        node("node3", "__getitem__(1)", 0, 0, 4, 0),
        node("node4", "__getitem__(0)", 0, 0, 4, 0),
        node("node5"),
        edge("node1", "node2"), edge("node1", "node3"), edge("node3", "node4"), edge("node2", "node5"),
    )  # fmt: skip
    assert [layer.id for layer in profile.layers] == ["node1", "node2", "node5"]


def test_a_size_node_stays() -> None:
    assert len(read(node("node1"), node("node2", "Size(0)", 0, 0, 4, 0), edge("node1", "node2")).layers) == 2


LSTM = (
    node("node1", "LSTM", size="[12; 4; 2]"),
    node("node2", "__getitem__(0)", 0, 0, 12, 0),
    node("node3", "__getitem__(1)", 0, 0, 4, 0),
    node("node4"),
    node("node5"),
    edge("node1", "node2"), edge("node1", "node3"), edge("node2", "node4"), edge("node3", "node5"),
)  # fmt: skip


def test_each_output_of_a_list_is_a_tensor_of_its_own() -> None:
    profile = read(*LSTM)
    assert profile.edges is not None
    assert profile.edges[:2] == (
        Edge(source="node1", target="node2", bytes_per_sample=6.0, tensor="output 0"),
        Edge(source="node1", target="node3", bytes_per_sample=2.0, tensor="output 1"),
    )
    assert profile.layers[0].output_bytes_per_sample == 9.0


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ({"node1"}, 6 + 2),
        ({"node1", "node2"}, 6 + 2),
        ({"node1", "node2", "node3"}, 6 + 2),
        ({"node1", "node2", "node4"}, 2),
    ],
)
def test_no_output_is_counted_twice_over_a_cut(inside: set[str], expected: float) -> None:
    assert cut_bytes(read(*LSTM), inside) == expected


def test_a_reader_of_the_whole_list_reads_every_output() -> None:
    profile = read(node("node1", "LSTM", size="[12; 4; 2]"), node("node2"), edge("node1", "node2"))
    assert cut_bytes(profile, {"node1"}) == 9


@pytest.mark.parametrize("inside", [{"node1"}, {"node1", "node2"}, {"node1", "node3"}, {"node1", "node2", "node3"}])
def test_an_output_that_several_nodes_read_crosses_a_cut_once(inside: set[str]) -> None:
    """Two views of output 0 and a reader of the whole list: 12 + 4 bytes, wherever the cut is."""
    profile = read(
        node("node1", "LSTM", size="[12; 4]"),
        node("node2", "__getitem__(0)", 0, 0, 12, 0),
        node("node3", "__getitem__(0)", 0, 0, 12, 0),
        node("node4"),
        node("node5"),
        edge("node1", "node2"), edge("node1", "node3"), edge("node1", "node5"),
        edge("node2", "node4"), edge("node3", "node4"), edge("node3", "node5"),
    )  # fmt: skip
    assert cut_bytes(profile, inside) == 8


def test_a_view_keeps_nothing_for_the_backward() -> None:
    stash = {layer.id: layer.stash_bytes_per_sample for layer in read(*LSTM).layers}
    assert stash == {"node1": 9, "node2": 0, "node3": 0, "node4": 4, "node5": 4}


def test_get_item_of_a_node_with_one_output_is_a_layer_like_any_other() -> None:
    profile = read(node("node1", "hidden"), node("node2", "__getitem__(3)"), node("node3"),
                   edge("node1", "node2"), edge("node2", "node3"))  # fmt: skip
    assert profile.edges == (Edge(source="node1", target="node2"), Edge(source="node2", target="node3"))


def test_a_stage_assignment_is_ignored_with_a_warning() -> None:
    profile = read(node("node1") + " -- stage_id=3")
    assert any("stage_id" in warning for warning in profile.warnings)


def test_assumptions_are_warned_about() -> None:
    warnings = " ".join(read(node("node1")).warnings)
    assert "proportional" in warnings
    assert "output bytes" in warnings


def test_windows_line_ends_blank_lines_and_a_missing_final_newline() -> None:
    text = "\r\n".join([node("node1"), "", node("node2"), "   ", edge("node1", "node2")])
    profile = parse_profile(text, profile_batch=2)
    assert profile.edges == (Edge(source="node1", target="node2"),)


def test_every_malformed_line_is_reported_at_once() -> None:
    lines = [
        node("node1"),
        "rubbish",
        node("node2", forward=-1),
        node("node3", backward="nan", size="inf"),
        node("node1"),
        node("node4", size="[1; x]"),
        node("node5", weights="[1; 2]"),
        node("node6").replace("backward_compute_time=2.0, ", ""),
        node("node7") + ", colour=3",
        "\tnode1 -- node9",
        "\tnode1 -- node2",
        "\tnode1 -- node2",
        "\tnode3 -- node3",
        "\tnode1 -> node2",
        node("node8", weights="1e999", size="1e30"),
        node("node10", size=""),
    ]
    assert faults(*lines) == [
        ("/lines/2", "unparsable_line"),
        ("/lines/3", "too_small"),
        ("/lines/4", "not_finite"),
        ("/lines/4", "not_finite"),
        ("/lines/5", "duplicate_id"),
        ("/lines/6", "wrong_type"),
        ("/lines/7", "wrong_type"),
        ("/lines/8", "missing"),
        ("/lines/9", "unknown_field"),
        ("/lines/10", "dangling_reference"),
        ("/lines/12", "duplicate_edge"),
        ("/lines/13", "cycle"),
        ("/lines/14", "unparsable_line"),
        ("/lines/15", "too_large"),
        ("/lines/15", "not_finite"),
        ("/lines/16", "wrong_type"),
    ]


def test_a_cycle_is_reported_at_one_of_its_edges() -> None:
    lines = (node("node1"), node("node2"), node("node3"), edge("node1", "node2"), edge("node2", "node3"))
    (fault,) = faults(*lines, edge("node3", "node2"))
    assert fault in [("/lines/5", "cycle"), ("/lines/6", "cycle")]


def test_an_output_that_does_not_exist() -> None:
    assert faults(node("node1", size="[1; 2]"), node("node2", "__getitem__(2)"), edge("node1", "node2")) == [
        ("/lines/3", "dangling_reference")
    ]


def test_edges_of_a_broken_node_are_no_faults_of_their_own() -> None:
    assert faults(node("node1", forward="?"), node("node2"), edge("node1", "node2")) == [("/lines/1", "wrong_type")]


def test_an_edge_without_its_tab_is_told_so() -> None:
    with pytest.raises(FormatError, match="tab"):
        read(node("node1"), "node1 -- node2")


def test_a_file_without_layers() -> None:
    assert faults("\tnode1 -- node2")[0] == ("/lines/1", "dangling_reference")
    assert faults(node("node1", "Input")) == [("", "no_layers")]
    assert faults("") == [("", "empty_file")]


def test_reading_stops_after_a_thousand_faults() -> None:
    found = faults(*["rubbish"] * 5000)
    assert len(found) == 1001
    assert found[-1] == ("/lines/1000", "too_many_faults")


def test_too_many_layers_are_a_fault() -> None:
    assert faults(*[node(f"node{number}") for number in range(20_001)]) == [("/layers", "too_long")]


@pytest.mark.parametrize("batch", [0, -1, 10**10, True, 1.5])
def test_a_profile_batch_is_a_positive_count(batch: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(node("node1"), batch=batch)
    assert [fault.pointer for fault in caught.value.faults] == ["/profile_batch"]


@st.composite
def graphs(draw: st.DrawFn, *, lists: bool = True) -> list[str]:
    """The lines of a graph; edges go from smaller to larger numbers, so that it is acyclic."""
    count = draw(st.integers(1, 8))
    numbers = st.floats(0, 1e4, allow_nan=False).map(repr)
    triples = st.lists(numbers, min_size=3, max_size=3).map(lambda items: f"[{'; '.join(items)}]")
    sizes = numbers | triples if lists else numbers
    kinds = st.sampled_from(["Conv2d", "LSTM", "Input", "__getitem__(0)", "__getitem__(2)", "Size(0)"])
    lines = [
        node(f"node{n}", draw(kinds), draw(numbers), draw(numbers), draw(sizes), draw(numbers)) for n in range(count)
    ]
    pairs = [(a, b) for b in range(count) for a in range(b)]
    chosen = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    return lines + [edge(f"node{a}", f"node{b}") for a, b in sorted(chosen)]


def tolerant(lines: list[str]) -> ModelProfile | None:
    try:
        return read(*lines)
    except FormatError as error:
        assert [fault.code for fault in error.faults] == ["no_layers"]  # noqa: PT017  nothing else may be wrong
        return None


def test_an_item_of_two_lists_is_a_view_of_neither() -> None:
    lists = [node("node0", "LSTM", size="[4.0; 8.0]"), node("node1", "LSTM", size="[4.0; 8.0]")]
    readers = [node("node2", "__getitem__(0)", size=4.0), node("node3")]
    edges = [edge("node0", "node2"), edge("node1", "node2"), edge("node2", "node3")]

    read_outputs = Counter(each.source for each in read(*lists, *readers, *edges).edges or ())

    assert read_outputs == {"node0": 2, "node1": 2, "node2": 1}


@given(graphs(), st.randoms())
def test_permuting_the_lines_changes_nothing(lines: list[str], chance: random.Random) -> None:
    shuffled = list(lines)
    chance.shuffle(shuffled)
    assert tolerant(shuffled) == tolerant(lines)


@given(graphs(), st.randoms())
def test_relabelling_the_nodes_keeps_the_graph(lines: list[str], chance: random.Random) -> None:
    numbers = list(range(8))
    chance.shuffle(numbers)
    labels = {f"node{old}": f"label{new}" for old, new in enumerate(numbers)}
    renamed = [" -- ".join(_relabel(part, labels) for part in line.split(" -- ")) for line in lines]
    before, after = tolerant(lines), tolerant(renamed)
    if before is None or after is None:
        assert before is after
        return
    assert {labels[layer.id]: layer.kind for layer in before.layers} == {layer.id: layer.kind for layer in after.layers}
    assert {
        (labels[each.source], labels[each.target], each.tensor, each.bytes_per_sample) for each in before.edges or ()
    } == {(each.source, each.target, each.tensor, each.bytes_per_sample) for each in after.edges or ()}


def _relabel(part: str, labels: dict[str, str]) -> str:
    return part.replace(part.strip(), labels.get(part.strip(), part.strip()))


@given(graphs(lists=False), st.sets(st.integers(0, 7)))
def test_a_cut_is_charged_for_what_its_readers_take(lines: list[str], chosen: set[int]) -> None:
    """Without lists a cut is the outputs of the layers inside that a layer outside reads: straight from the lines."""
    profile = tolerant(lines)
    if profile is None:
        return
    inside = {f"node{number}" for number in chosen}
    outputs = {layer.id: layer.output_bytes_per_sample for layer in profile.layers}
    read_outside = {e.source for e in profile.edges or () if e.source in inside and e.target not in inside}
    assert cut_bytes(profile, inside) == pytest.approx(sum(outputs[name] for name in read_outside))


@settings(max_examples=300)
@given(
    st.text(max_size=200)
    | st.binary(max_size=200)
    | st.lists(
        st.text("node123 -=,;[].\tactivation_sizeparmforwdckbuNaInf\r\n", max_size=60)
        | st.just(node("node1"))
        | st.just(edge("node1", "node2")),
        max_size=6,
    ).map("\n".join)
)
def test_no_input_raises_anything_but_invalid_input(data: str | bytes) -> None:
    for form in ("pipedream", "json", None):
        try:
            profile = parse_profile(data, format=form, profile_batch=4)
        except InvalidInputError as error:
            assert error.faults  # noqa: PT017  any other exception fails the test
        else:
            assert profile.layers


@pytest.mark.skipif(not GRAPHS, reason="the published PipeDream profiles are not at hand")
class TestPublishedGraphs:
    """The GPU profiles published with PipeDream."""

    @pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.name)
    def test_total_time(self, path: Path) -> None:
        groups = json.loads((SHARED / "cases" / "reference-optima.json").read_text())["groups"]
        rows = next(group["rows"] for group in groups if group["name"] == "pipedream-chain-and-dag")
        totals = {row["file"].rsplit("/", 1)[-1]: row["total_ms"] for row in rows}
        total_s = sum(layer.times[0].forward_s + layer.times[0].backward_s for layer in _load(path).layers)
        assert total_s * 1000 == pytest.approx(totals[path.name], abs=1e-6)

    @pytest.mark.parametrize("path", GRAPHS, ids=lambda path: path.name)
    def test_layers_are_the_nodes_without_inputs_and_unread_items(self, path: Path) -> None:
        counts = {"alexnet": 22, "densenet121": 428, "gnmt": 37, "gnmt_large": 77, "resnet50": 176, "vgg16": 40}
        assert len(_load(path).layers) == counts[path.name.split(".")[0]]

    def test_names_come_from_the_file(self) -> None:
        assert {_load(path).name for path in GRAPHS} == {path.name.removesuffix(".graph.txt") for path in GRAPHS}


def _load(path: Path) -> ModelProfile:
    return load_profile(path, profile_batch=BATCHES.get(path.name.split(".")[0], 128))
