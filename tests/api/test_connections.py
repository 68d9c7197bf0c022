"""Connections that begin a request and never end it are closed; those that are slow but end it are answered."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest


def connected(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=30)


def trickle(connection: socket.socket) -> None:
    """Sends a byte now and then, until the connection breaks."""
    while True:
        connection.sendall(b"x")
        time.sleep(0.05)


@pytest.fixture
def hasty(start_service: Any) -> str:
    """The address of a service that waits half a second for headers."""
    url: str = start_service(scripted=True, header_timeout_s=0.5).url
    return url


@pytest.mark.parametrize("begun", [b"", b"G", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_headers_that_do_not_arrive(hasty: str, begun: bytes) -> None:
    with connected(hasty) as connection:
        connection.sendall(begun)
        assert connection.recv(1) == b""


@pytest.mark.parametrize(
    "begun",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\nno more",
    ],
)
def test_bytes_that_trickle_after_an_answer(hasty: str, begun: bytes) -> None:
    with connected(hasty) as connection:
        connection.sendall(begun)
        assert connection.recv(9) == b"HTTP/1.1 "
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle(connection)


def test_a_slow_search_is_not_a_slow_request(hasty: str, request_json: dict[str, Any]) -> None:
    profile = {**request_json["profile"], "name": "spin"}
    body = json.dumps({**request_json, "profile": profile, "time_limit_s": 2.0}).encode()
    fields = ("Host: localhost", "Content-Type: application/json", "Prefer: wait=60", f"Content-Length: {len(body)}")
    head = "\r\n".join(("POST /v1/plans HTTP/1.1", *fields))
    with connected(hasty) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body[:100])
        time.sleep(1)
        connection.sendall(body[100:])
        assert connection.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: elsewhere\r\n\r\n",
        b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_like_everything_else(service: Any, sent: bytes) -> None:
    with connected(service.url) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        head, _, body = b"".join(iter(lambda: connection.recv(65_536), b"")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert [fault["code"] for fault in json.loads(body)["errors"]] == ["not_http"]
