"""Every fault of an input is said at once, on stderr and as a problem object, as Python says it; exit code 3."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from bapipe.errors import Fault, InvalidInputError
from bapipe.faults import parse
from bapipe.problem import PlanRequest

Document = dict[str, Any]
Change = Callable[[Document, Document], None]


def set_in_layer(index: int, field: str, value: Any) -> Change:
    return lambda profile, cluster: profile["layers"][index].__setitem__(field, value)


def set_in_time(field: str, value: Any) -> Change:
    return lambda profile, cluster: profile["layers"][0]["times"][0].__setitem__(field, value)


def set_edges(*pairs: tuple[str, str]) -> Change:
    edges = [{"source": source, "target": target} for source, target in pairs]
    return lambda profile, cluster: profile.__setitem__("edges", edges)


def set_in_cluster(field: str, value: Any) -> Change:
    return lambda profile, cluster: cluster.__setitem__(field, value)


def times_in_ms(profile: Document, cluster: Document) -> None:
    profile["layers"][0]["times"][0]["forward_ms"] = profile["layers"][0]["times"][0].pop("forward_s")


FAULTS: dict[str, tuple[Change, list[tuple[str, str]]]] = {
    "NaN time": (set_in_time("forward_s", math.nan), [("not_finite", "/profile/layers/0/times/0/forward_s")]),
    "infinite time": (set_in_time("backward_s", math.inf), [("not_finite", "/profile/layers/0/times/0/backward_s")]),
    "minus infinity": (set_in_time("backward_s", -math.inf), [("not_finite", "/profile/layers/0/times/0/backward_s")]),
    "negative time": (set_in_time("forward_s", -1.0), [("too_small", "/profile/layers/0/times/0/forward_s")]),
    "absurd time": (set_in_time("forward_s", 1e300), [("too_large", "/profile/layers/0/times/0/forward_s")]),
    "time as text": (set_in_time("forward_s", "3 ms"), [("wrong_type", "/profile/layers/0/times/0/forward_s")]),
    "time in ms": (
        times_in_ms,
        [
            ("missing", "/profile/layers/0/times/0/forward_s"),
            ("unknown_field", "/profile/layers/0/times/0/forward_ms"),
        ],
    ),
    "negative size": (set_in_layer(2, "parameter_bytes", -4), [("too_small", "/profile/layers/2/parameter_bytes")]),
    "absurd size": (set_in_layer(2, "parameter_bytes", 10**30), [("too_large", "/profile/layers/2/parameter_bytes")]),
    "NaN size": (
        set_in_layer(1, "output_bytes_per_sample", math.nan),
        [("not_finite", "/profile/layers/1/output_bytes_per_sample")],
    ),
    "half a byte": (set_in_layer(1, "parameter_bytes", 0.5), [("wrong_type", "/profile/layers/1/parameter_bytes")]),
    "duplicate id": (set_in_layer(3, "id", "a"), [("duplicate_id", "/profile/layers/3/id")]),
    "empty id": (set_in_layer(3, "id", ""), [("too_short", "/profile/layers/3/id")]),
    "cycle": (set_edges(("a", "b"), ("b", "c"), ("c", "a")), [("cycle", "/profile/edges")]),
    "edge to itself": (set_edges(("a", "a")), [("cycle", "/profile/edges")]),
    "dangling edge": (set_edges(("a", "z")), [("dangling_reference", "/profile/edges/0/target")]),
    "edge given twice": (set_edges(("a", "b"), ("a", "b")), [("duplicate_edge", "/profile/edges/1")]),
    "empty model": (lambda profile, cluster: profile.__setitem__("layers", []), [("too_short", "/profile/layers")]),
    "no devices": (set_in_cluster("devices", []), [("too_short", "/cluster/devices")]),
    "no kinds": (
        set_in_cluster("kinds", []),
        [
            ("too_short", "/cluster/kinds"),
            ("dangling_reference", "/cluster/devices/0/kind"),
            ("dangling_reference", "/cluster/devices/1/kind"),
        ],
    ),
    "unknown kind": (
        set_in_cluster("devices", [{"id": "d0", "kind": "referense"}]),
        [("dangling_reference", "/cluster/devices/0/kind")],
    ),
    "duplicate device": (
        set_in_cluster("devices", [{"id": "d0", "kind": "reference"}] * 2),
        [("duplicate_id", "/cluster/devices/1/id")],
    ),
    "link without bandwidth": (
        set_in_cluster("links", {"within_host": {"bandwidth_bytes_per_s": 0}}),
        [("too_small", "/cluster/links/within_host/bandwidth_bytes_per_s")],
    ),
    "newer schema": (set_in_cluster("schema_version", 2), [("unknown_value", "/cluster/schema_version")]),
}


def faults_in_python(profile: Document, cluster: Document, **options: Any) -> list[Fault]:
    with pytest.raises(InvalidInputError) as caught:
        parse(PlanRequest, {"profile": profile, "cluster": cluster, **options})
    return list(caught.value.faults)


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_as_in_python(name: str, profile: Document, cluster: Document, write: Any, run: Any) -> None:
    change, expected = FAULTS[name]
    change(profile, cluster)
    files = write("profile.json", profile), write("cluster.json", cluster)

    result = run("plan", *files, "--batch", "4", "--json")

    assert result.exit_code == 3
    problem = json.loads(result.stdout)
    faults = [Fault(**error) for error in problem["errors"]]
    assert sorted((fault.code, fault.pointer) for fault in faults) == sorted(expected)
    assert sorted(faults, key=str) == sorted(faults_in_python(profile, cluster, batch_size=4), key=str)
    assert result.stderr.splitlines() == [str(fault) for fault in faults]


def test_faults_of_profile_cluster_and_options_come_together(
    profile: Document, cluster: Document, write: Any, run: Any
) -> None:
    for change in (set_in_time("forward_s", math.nan), set_edges(("a", "b"), ("b", "a"))):
        change(profile, cluster)
    cluster["devices"] = []
    files = write("profile.json", profile), write("cluster.json", cluster)

    result = run("plan", *files, "--batch", "0", "--schedules", "1f2b", "--gap", "nan", "--json")

    assert result.exit_code == 3
    assert {(error["code"], error["pointer"]) for error in json.loads(result.stdout)["errors"]} == {
        ("not_finite", "/profile/layers/0/times/0/forward_s"),
        ("cycle", "/profile/edges"),
        ("too_short", "/cluster/devices"),
        ("too_small", "/batch_size"),
        ("unknown_value", "/schedules/0"),
        ("not_finite", "/gap"),
    }


def test_faults_between_documents_come_with_those_inside(
    profile: Document, cluster: Document, write: Any, run: Any
) -> None:
    profile["pins"] = [{"layer": "a", "stage": 0, "device": "d7"}]
    profile["layers"][0]["times"][0]["forward_s"] = -1.0
    files = write("profile.json", profile), write("cluster.json", cluster)

    result = run("plan", *files, "--batch", "4", "--json")

    faults = [Fault(**error) for error in json.loads(result.stdout)["errors"]]
    assert faults == faults_in_python(profile, cluster, batch_size=4)
    assert ("dangling_reference", "/profile/pins/0/device") in [(fault.code, fault.pointer) for fault in faults]


@pytest.mark.parametrize("name", ["x" * 5000, "y/" * 2000 + "z.json", "x" * 5000 + ".json"])
def test_a_name_that_no_file_can_have(name: str, profile: Document, write: Any, run: Any) -> None:
    for arguments in ([name, "2xreference"], [write("profile.json", profile), name]):
        result = run("plan", *arguments, "--batch", "4", "--json")

        assert result.exit_code == 3
        assert json.loads(result.stdout)["errors"]


def test_names_that_a_terminal_would_obey_are_shown_escaped(
    profile: Document, cluster: Document, write: Any, run: Any
) -> None:
    for layer in profile["layers"]:
        layer["id"] += "\x1b]0;owned\x07\x9b31m\u202e"
    files = write("profile.json", profile), write("cluster.json", cluster)
    planned = run("plan", *files, "--batch", "4", "--schedules", "gpipe")
    profile["edges"] = [{"source": profile["layers"][0]["id"] + "\nforged", "target": "b"}]
    refused = run("plan", write("profile.json", profile), files[1], "--batch", "4")

    assert (planned.exit_code, refused.exit_code) == (0, 3)
    for text in (planned.stdout, refused.stderr):
        assert "\\x1b]0;owned\\x07" in text
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    assert "forged" in refused.stderr
    assert not any(line.startswith("forged") for line in refused.stderr.splitlines())


@pytest.mark.parametrize(
    ("options", "code", "pointer"),
    [
        (["--batch", "4", "--microbatches", "3"], "does_not_divide", "/microbatch_counts/0"),
        (["--batch", "4", "--microbatch-sizes", "1,0"], "too_small", "/microbatch_sizes/1"),
        (
            ["--batch", "4", "--microbatch-sizes", "1", "--microbatches", "4"],
            "conflicting_fields",
            "/microbatch_counts",
        ),
        (["--batch", str(10**12)], "too_large", "/batch_size"),
        (["--batch", "4", "--time-limit", "0"], "too_small", "/time_limit_s"),
        (["--batch", "4", "--time-limit", "inf"], "not_finite", "/time_limit_s"),
        (["--batch", "4", "--gap", "1"], "too_large", "/gap"),
        (["--batch", "4", "--max-stages", "0"], "too_small", "/max_stages"),
        (["--batch", "4", "--optimizer-bytes-per-parameter", "-1"], "too_small", "/optimizer_bytes_per_parameter"),
    ],
)
def test_an_option_is_a_field_of_the_request(
    options: list[str], code: str, pointer: str, profile: Document, cluster: Document, write: Any, run: Any
) -> None:
    files = write("profile.json", profile), write("cluster.json", cluster)

    result = run("plan", *files, *options, "--json")

    assert result.exit_code == 3
    assert [(error["code"], error["pointer"]) for error in json.loads(result.stdout)["errors"]] == [(code, pointer)]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "not_json"),
        ("[" * 100_000, "not_json"),
        ("", "empty_file"),
        ("no profile at all", "unknown_format"),
        ('{"nodes": [], "maxFPGAs": 1}', "wrong_document"),
        ("[]", "wrong_type"),
        ("null", "wrong_type"),
        ("3", "wrong_type"),
    ],
)
def test_a_file_that_is_no_profile(
    text: str, code: str, cluster: Document, write: Any, run: Any, tmp_path: Any
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)

    result = run("plan", str(path), write("cluster.json", cluster), "--batch", "4", "--json")

    assert result.exit_code == 3
    assert [(error["code"], error["pointer"]) for error in json.loads(result.stdout)["errors"]] == [(code, "/profile")]


def test_bytes_that_are_no_text(cluster: Document, write: Any, run: Any, tmp_path: Any) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(b"\x80\x81\xff")

    result = run("plan", str(path), write("cluster.json", cluster), "--batch", "4")

    assert result.exit_code == 3
    assert "[not_utf8]" in result.stderr


@pytest.mark.parametrize("name", ["vgg61", "absent/file.json"])
def test_a_profile_that_is_not_there(name: str, run: Any) -> None:
    result = run("plan", name, "4xV100-16G:pcie3", "--batch", "4")

    assert result.exit_code == 3
    assert "[no_such_file]" in result.stderr


def test_an_example_nearly_spelled_right_is_named(run: Any) -> None:
    result = run("plan", "vgg61", "4xV100-16G:pcie3", "--batch", "4")

    assert "did you mean 'vgg16'?" in result.stderr


@pytest.mark.parametrize(
    "spec",
    ["", "4x", "0xV100-16G:pcie3", "4xV100:pcie3", "4xV100-16G:pcie9", "4xV100-16G:10GHz", "4x4x4"],
)
def test_a_cluster_spec_that_says_nothing(spec: str, profile: Document, write: Any, run: Any) -> None:
    result = run("plan", write("profile.json", profile), spec, "--batch", "4", "--json")

    assert result.exit_code == 3
    errors = json.loads(result.stdout)["errors"]
    assert errors
    assert all(error["pointer"].startswith("/cluster") for error in errors)


@pytest.mark.parametrize("command", ["simulate", "plan", "compare"])
def test_faults_leave_no_traceback(command: str, write: Any, run: Any) -> None:
    path = write("odd.json", {"layers": [None, 3, {"id": {"a": []}}], "edges": 7})
    arguments = [path] if command == "simulate" else [path, "2xreference", "--batch", "4"]

    result = run(command, *arguments)

    assert result.exit_code == 3
    assert "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("custom", "simulate --orders FILE"),
        ("zb-h1", "bapipe schedules --plan zb-h1"),
        ("1F1B-SNO", "1f1b over links whose mode is blocking"),
        ("2f2b", "Input should be 'data-parallel', 'gpipe'"),
    ],
)
def test_a_schedule_that_cannot_be_chosen_says_what_to_do(
    name: str, said: str, profile: Document, write: Any, run: Any
) -> None:
    path = write("profile.json", profile)
    result = run("plan", path, "2xreference", "--batch", "4", "--schedules", f"1f1b,{name}", "--json")

    assert result.exit_code == 3
    (error,) = json.loads(result.stdout)["errors"]
    assert (error["code"], error["pointer"]) == ("unknown_value", "/schedules/1")
    assert said in error["detail"]
