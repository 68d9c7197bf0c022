"""Bodies made to hurt: each is a 4xx, and the service's memory stays where it was."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serving.processes import Service, end, start

JSON = {"Content-Type": "application/json"}
PATHS = ("/v1/plans", "/v1/plans:validate", "/v1/simulations", "/v1/emulations", "/v1/profiles:import")
BODIES = 10
MOST_GROWTH_BYTES = 96 * 2**20
LARGE = 100_000_000


def zeros(size: int) -> Iterator[bytes]:
    """So many bytes, none of which are held here."""
    chunk = bytes(2**20)
    for _ in range(size // len(chunk)):
        yield chunk


HOSTILE = {
    "not JSON": (lambda: b"profile = vgg16", JSON),
    "nested arrays": (lambda: b"[" * 1_000_000, JSON),
    "nested objects": (lambda: b'{"a":' * 200_000, JSON),
    "100 MB": (lambda: zeros(LARGE), JSON),
    "NaN": (lambda: b'{"batch_size": NaN, "gap": -Infinity}', JSON),
    "a huge integer": (lambda: b'{"batch_size": 1' + b"0" * 4_000_000 + b"}", JSON),
    "a huge exponent": (lambda: b'{"batch_size": 1e999999999}', JSON),
    "invalid UTF-8": (lambda: b'{"a": "\xc3\x28"}', JSON),
    "half a surrogate": (lambda: b'{"profile": {"name": "\\ud800"}}', JSON),
    "many keys": (lambda: b"{" + b",".join(b'"k%d":0' % k for k in range(20_000)) + b"}", JSON),
    "the same key": (lambda: b"{" + b",".join([b'"batch_size":8'] * 200_000) + b"}", JSON),
    "a gzip bomb": (lambda: gzip.compress(bytes(LARGE)), {**JSON, "Content-Encoding": "gzip"}),
    "a deflate bomb": (lambda: zlib.compress(bytes(LARGE)), {**JSON, "Content-Encoding": "deflate"}),
    "a bomb of two codings": (
        lambda: gzip.compress(gzip.compress(bytes(LARGE))),
        {**JSON, "Content-Encoding": "gzip, gzip"},
    ),
    "a coding of another kind": (lambda: bz2.compress(bytes(LARGE)), {**JSON, "Content-Encoding": "x-bzip2"}),
}


@pytest.fixture(scope="module")
def hardened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = start(
        tmp_path_factory.mktemp("hardened"), scripted=True, max_body_bytes=8_000_000, max_concurrent_solves=2
    )
    yield service
    end(service)


def resident_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096


def peak_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_refused(hardened: Service, name: str, path: str) -> None:
    make, headers = HOSTILE[name]
    response = httpx.post(hardened.url + path, content=make(), headers=headers, timeout=60)
    assert 400 <= response.status_code < 500
    assert response.headers["content-type"] == "application/problem+json"
    assert len(response.content) < 1_000_000
    assert response.json()["errors"]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to see memory")
@pytest.mark.parametrize("name", ["100 MB", "nested arrays", "many keys", "a gzip bomb"])
def test_memory_is_flat(hardened: Service, name: str) -> None:
    make, headers = HOSTILE[name]
    with httpx.Client(base_url=hardened.url, timeout=60) as client:
        for _ in range(3):
            client.post("/v1/plans", content=make(), headers=headers)
        before = resident_bytes(hardened.process.pid)
        for _ in range(BODIES):
            assert client.post("/v1/plans", content=make(), headers=headers).status_code >= 400
    assert resident_bytes(hardened.process.pid) - before < MOST_GROWTH_BYTES
    assert httpx.get(hardened.url + "/readyz").status_code == 200


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see memory")
def test_a_hundred_thousand_faults_take_no_memory_of_the_service(hardened: Service) -> None:
    items = b",".join([b"0"] * 100_000)
    before = peak_bytes(hardened.process.pid)
    response = httpx.post(
        f"{hardened.url}/v1/plans", content=b'{"profile": {"layers": [%s]}}' % items, headers=JSON, timeout=120
    )
    assert response.status_code == 422
    assert {"wrong_type", "missing", "too_many_faults"} == {fault["code"] for fault in response.json()["errors"]}
    assert peak_bytes(hardened.process.pid) - before < MOST_GROWTH_BYTES / 4
