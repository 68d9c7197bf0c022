"""Finding the format, reading files that are none, and native JSON there and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bapipe.errors import FormatError, InvalidInputError
from bapipe.formats import FORMATS, load_cluster, load_plan, load_profile, parse_profile, reading, to_json
from bapipe.presets import cluster_from_spec
from bapipe.problem import Edge, Layer, LayerTime, ModelProfile, Pin

GRAPH = (
    "node1 -- Conv2d -- forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=4\n"
    "node2 -- Conv2d -- forward_compute_time=1, backward_compute_time=2, activation_size=8, parameter_size=4\n"
    "\tnode1 -- node2\n"
)
CHAIN = ModelProfile(name="chain", layers=(Layer(id="a"), Layer(id="b")))


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(InvalidInputError) as caught:
        call()
    return caught.value.faults[0].code


def test_the_content_tells_the_format_not_the_name(tmp_path: Path) -> None:
    odd = tmp_path / "profile.json"
    odd.write_text(GRAPH)
    assert [layer.id for layer in load_profile(odd, profile_batch=1).layers] == ["node1", "node2"]
    odd.write_text(to_json(CHAIN))
    assert load_profile(str(odd)) == CHAIN


def test_a_forced_format_wins(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_profile(GRAPH, format="json")
    assert caught.value.faults[0].code == "not_json"


def test_text_and_plain_values_are_read_too() -> None:
    assert load_profile(to_json(CHAIN)) == CHAIN
    assert load_profile(json.loads(to_json(CHAIN))) == CHAIN
    assert len(load_profile(GRAPH, profile_batch=1).layers) == 2


def test_an_unknown_format_name_lists_the_known_ones() -> None:
    with pytest.raises(FormatError, match="did you mean 'pipedream'") as caught:
        parse_profile(GRAPH, format="pipedreams")
    assert [(fault.code, fault.pointer) for fault in caught.value.faults] == [("unknown_format", "/format")]
    assert all(name in str(caught.value) for name in FORMATS)


def test_a_file_of_no_known_format() -> None:
    assert code_of(lambda: parse_profile("layer,ms\nconv,3\n")) == "unknown_format"


def test_a_pipedream_file_needs_its_batch() -> None:
    assert code_of(lambda: parse_profile(GRAPH)) == "missing_profile_batch"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"kinds": [], "devices": []}, "a BaPipe cluster"),
        ({"profile": {}, "cluster": {}, "batch_size": 1}, "a BaPipe plan request"),
        ({"status": "optimal", "request": {}}, "a BaPipe plan,"),
        ({"nodes": [], "maxFPGAs": 2}, "a dnn-partitioning graph"),
    ],
)
def test_another_document_is_named(document: dict[str, Any], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        load_profile(document)


def test_missing_fields_of_native_json_are_all_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_profile({"nam": "x"})
    assert {fault.code for fault in caught.value.faults} == {"missing", "unknown_field"}


@pytest.mark.parametrize(
    "text", ["[]", "[1, 2]", "{", '{"name": NaN}', "[" * 100_000, '{"name": 1' + "0" * 10_000 + "}"]
)
def test_json_that_is_no_profile(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_profile(text)


@pytest.mark.parametrize("load", [load_profile, load_cluster, load_plan])
class TestUnreadableFiles:
    """What cannot be read is a fault with a sentence, never an OSError or a UnicodeDecodeError."""

    def test_missing(self, load: Callable[[Path], object], tmp_path: Path) -> None:
        assert code_of(lambda: load(tmp_path / "nothing")) == "no_such_file"

    def test_a_directory(self, load: Callable[[Path], object], tmp_path: Path) -> None:
        assert code_of(lambda: load(tmp_path)) == "is_a_directory"

    def test_below_a_file(self, load: Callable[[Path], object], tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        assert code_of(lambda: load(tmp_path / "file" / "below")) == "unreadable_file"

    def test_a_null_character_in_the_name(self, load: Callable[[Path], object]) -> None:
        assert code_of(lambda: load(Path("a\0b"))) == "unreadable_file"

    def test_empty(self, load: Callable[[Path], object], tmp_path: Path) -> None:
        (tmp_path / "empty").write_bytes(b" \n")
        assert code_of(lambda: load(tmp_path / "empty")) == "empty_file"

    def test_no_utf8(self, load: Callable[[Path], object], tmp_path: Path) -> None:
        (tmp_path / "latin").write_bytes(b'{"name": "caf\xe9"}')
        assert code_of(lambda: load(tmp_path / "latin")) == "not_utf8"

    def test_too_large(
        self, load: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # fmt: skip
        monkeypatch.setattr(reading, "MAX_FILE_BYTES", 10)
        (tmp_path / "large").write_bytes(b"x" * 11)
        assert code_of(lambda: load(tmp_path / "large")) == "file_too_large"


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "windows.json"
    path.write_bytes(b"\xef\xbb\xbf" + to_json(CHAIN).encode())
    assert load_profile(path) == CHAIN


def test_a_cluster_reads_back(tmp_path: Path) -> None:
    cluster = cluster_from_spec("2x(2xV100-16G:nvlink2):25Gb")
    path = tmp_path / "cluster.json"
    path.write_text(to_json(cluster), encoding="utf-8")
    assert load_cluster(path) == cluster


def test_a_file_says_its_schema_version() -> None:
    assert json.loads(to_json(CHAIN))["schema_version"] == 1


finite = st.floats(0, 1e6, allow_nan=False)
names = st.text(min_size=1, max_size=12).filter(str.isprintable)


@st.composite
def profiles(draw: st.DrawFn) -> ModelProfile:
    ids = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    layers = tuple(
        Layer(
            id=name,
            kind=draw(names),
            times=tuple(
                LayerTime(device_kind="k", microbatch_size=size, forward_s=draw(finite), backward_s=draw(finite))
                for size in draw(st.sets(st.integers(1, 64), max_size=2))
            ),
            parameter_bytes=draw(st.integers(0, 10**12)),
            output_bytes_per_sample=draw(finite),
            stash_bytes_per_sample=draw(st.none() | finite),
        )
        for name in ids
    )
    pairs = [(a, b) for i, a in enumerate(ids) for b in ids[i + 1 :]]
    edges = tuple(
        Edge(source=a, target=b, bytes_per_sample=draw(st.none() | finite))
        for a, b in (sorted(draw(st.sets(st.sampled_from(pairs)))) if pairs else ())
    )
    pins = (Pin(layer=ids[0], stage="first"),) if draw(st.booleans()) else ()
    return ModelProfile(name="net", layers=layers, edges=draw(st.none() | st.just(edges)), pins=pins)


@given(profiles())
def test_native_json_reads_back_equal(profile: ModelProfile) -> None:
    assert load_profile(to_json(profile)) == profile
