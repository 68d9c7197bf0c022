"""Everything that can be wrong with a request: a 4xx problem document with every fault, never a 5xx."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from bapipe.errors import InvalidInputError
from bapipe.faults import parse, parse_json
from bapipe.problem import PlanRequest

JSON = {"Content-Type": "application/json"}
LIMIT = 1_000_000


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document in `response`."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert all(set(item) == {"code", "detail", "pointer"} for item in document["errors"])
    return document


def codes(document: dict[str, Any]) -> list[str]:
    return [item["code"] for item in document["errors"]]


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/simulations", "/v1/emulations"])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"profile: vgg16", "not_json"),
        (b"\xff\xfe{}", "not_json"),
        (b'{"profile": "\xc3"}', "not_json"),
        (b'{"\\ud800": 1}', "not_json"),
        (b"[" * 100_000, "not_json"),
        (b'{"a":' * 150 + b"1" + b"}" * 150, "not_json"),
        (b"9" * 5000, "not_json"),
        (b"[]", "wrong_type"),
        (b'"plan"', "wrong_type"),
        (b"null", "wrong_type"),
        (b"{}", "missing"),
        (b"[" + b"{}," * 300_000 + b"{}]", "wrong_type"),
    ],
)
def test_a_body_that_is_no_request(http: httpx.Client, path: str, body: bytes, code: str) -> None:
    document = problem(http.post(path, content=body, headers=JSON), 422)
    assert set(codes(document)) == {code}


FAULTY = {
    "nan": ("batch_size", float("nan")),
    "infinity": ("gap", float("inf")),
    "negative": ("batch_size", -1),
    "zero": ("batch_size", 0),
    "huge": ("batch_size", 10**400),
    "text for a number": ("batch_size", "8"),
    "fraction for a count": ("batch_size", 8.5),
    "unknown objective": ("objective", "fastest"),
    "unknown field": ("batchsize", 8),
    "micro-batches that do not divide": ("microbatch_sizes", [3]),
    "unsupported objective": ("objective", "latency"),
    "over the time limit": ("time_limit_s", 1e5),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_wrong_field_is_refused_at_its_place(http: httpx.Client, request_json: dict[str, Any], name: str) -> None:
    field, value = FAULTY[name]
    response = http.post("/v1/plans", content=json.dumps({**request_json, field: value}), headers=JSON)
    pointers = [item["pointer"] for item in problem(response, 422)["errors"]]
    assert all(pointer.startswith(f"/{field}") for pointer in pointers)


def test_every_fault_is_reported_at_once_as_python_reports_it(http: httpx.Client, request_json: dict[str, Any]) -> None:
    profile = json.loads(json.dumps(request_json["profile"]))
    profile["layers"][0]["times"][0]["forward_s"] = -1.0
    profile["layers"][1]["id"] = "embedding"
    profile["edges"] = [{"source": "embedding", "target": "haed"}, {"source": "head", "target": "head"}]
    wrong = {**request_json, "profile": profile, "batch_size": float("nan"), "speed": 1}
    body = json.dumps(wrong)

    with pytest.raises(InvalidInputError) as caught:
        parse(PlanRequest, parse_json(body))
    expected = [{"code": f.code, "detail": f.detail, "pointer": f.pointer} for f in caught.value.faults]

    document = problem(http.post("/v1/plans", content=body, headers=JSON), 422)
    assert document["errors"] == expected
    assert {"too_small", "duplicate_id", "dangling_reference", "cycle", "unknown_field"} <= set(codes(document))


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "", "json"]
)
def test_a_body_of_another_kind_is_refused(http: httpx.Client, content_type: str) -> None:
    response = http.post("/v1/plans", content=b"{}", headers={"Content-Type": content_type})
    assert codes(problem(response, 415)) == ["unsupported_media_type"]
    assert response.headers["accept"] == "application/json"


def test_a_json_body_may_name_its_charset(http: httpx.Client) -> None:
    headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
    assert codes(problem(http.post("/v1/plans", content=b"[]", headers=headers), 422)) == ["wrong_type"]


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, gzip", "anything"])
def test_a_coded_body_is_refused_unread(http: httpx.Client, coding: str) -> None:
    bomb = gzip.compress(bytes(100_000_000))
    response = http.post("/v1/plans", content=bomb, headers={**JSON, "Content-Encoding": coding})
    assert codes(problem(response, 415)) == ["unsupported_content_encoding"]


def test_a_body_over_the_limit_is_refused(http: httpx.Client) -> None:
    response = http.post("/v1/plans", content=b" " * (LIMIT + 1), headers=JSON)
    assert codes(problem(response, 413)) == ["body_too_large"]


def test_a_body_at_the_limit_is_read(http: httpx.Client) -> None:
    response = http.post("/v1/plans", content=b"{}" + b" " * (LIMIT - 2), headers=JSON)
    assert set(codes(problem(response, 422))) == {"missing"}


def test_a_body_without_a_length_is_counted_as_it_arrives(http: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(200):
            yield b" " * 10_000

    response = http.post("/v1/plans", content=chunks(), headers=JSON)
    assert codes(problem(response, 413)) == ["body_too_large"]


def raw(url: str, head: str, body: bytes = b"") -> bytes:
    """The answer to bytes that no HTTP library would send."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port or 80), timeout=30) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
    return answer


HEAD = "POST /v1/plans HTTP/1.1\nHost: localhost\nConnection: close\nContent-Type: application/json"


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (f"{HEAD}\nContent-Length: 1", b"{}"),
        (f"{HEAD}\nContent-Length: -1", b"{}"),
        (f"{HEAD}\nContent-Length: x", b"{}"),
        (f"{HEAD}\nTransfer-Encoding: chunked", b"zz\r\n"),
        (HEAD, b""),
    ],
)
def test_a_length_that_is_a_lie_is_no_error_of_the_service(service: Any, head: str, body: bytes) -> None:
    assert raw(service.url, head, body).startswith(b"HTTP/1.1 4")


def test_a_body_that_does_not_arrive_is_not_waited_for_for_ever(start_service: Any) -> None:
    service = start_service(body_timeout_s=0.5)
    answer = raw(service.url, f"{HEAD}\nContent-Length: 100", b"{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"body_too_slow" in answer


def test_a_client_that_leaves_within_its_body_is_no_error(start_service: Any) -> None:
    service = start_service()
    address = httpx.URL(service.url)
    with socket.create_connection((address.host, address.port or 80)) as connection:
        connection.sendall(HEAD.replace("\n", "\r\n").encode() + b"\r\nContent-Length: 100\r\n\r\n{")
    assert httpx.get(service.url + "/livez").status_code == 200
    service.stop()
    assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/plans/", 404, "not_found"),
        ("GET", f"/v1/plans/{'0' * 32}", 404, "not_found"),
        ("GET", f"/v1/simulations/{'0' * 32}", 404, "not_found"),
        ("GET", f"/v1/emulations/{'0' * 32}", 404, "not_found"),
        ("GET", "/v1/plans/%00", 404, "not_found"),
        ("GET", "/v1/plans/%ff' or 1=1", 404, "not_found"),
        ("GET", "/v1/plans/" + "a" * 5000, 404, "not_found"),
        ("PUT", "/v1/plans", 405, "method_not_allowed"),
        ("DELETE", "/v1/simulations", 405, "method_not_allowed"),
        ("POST", "/readyz", 405, "method_not_allowed"),
    ],
)
def test_no_such_thing(http: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    response = http.request(method, path)
    assert codes(problem(response, status)) == [code]
    assert ("allow" in response.headers) == (status == 405)
    assert len(response.content) < 1000


@pytest.mark.parametrize(
    ("path", "methods"), [("/v1/plans", "GET, POST"), (f"/v1/emulations/{'0' * 32}", "DELETE, GET"), ("/livez", "GET")]
)
def test_a_refused_method_is_told_the_right_ones(http: httpx.Client, path: str, methods: str) -> None:
    assert ", ".join(sorted(http.patch(path).headers["allow"].split(", "))) == methods


def test_the_service_is_well_after_all_this(http: httpx.Client) -> None:
    assert http.get("/readyz").json() == {"status": "ready"}
