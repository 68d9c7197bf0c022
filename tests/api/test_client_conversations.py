"""The client against answers that our own service does not give, or not at will: its core, without a network."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from bapipe_client import (
    Client,
    NotFoundError,
    ServerError,
    ServiceBusyError,
    ServiceUnreachableError,
    UnexpectedResponseError,
)
from bapipe_client._retries import RetryPolicy, retry_after_s

PLAN = {"id": "p", "state": "running", "created_at": "2030-01-01T00:00:00Z"}

Answer = Callable[[httpx.Request], httpx.Response]


def client(*answers: httpx.Response | Exception, retries: int = 3) -> tuple[Client, list[httpx.Request]]:
    """A client that is given `answers`, one a request, and the requests that it sends."""
    sent: list[httpx.Request] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    return Client("http://service/base/", retries=retries, transport=httpx.MockTransport(answer)), sent


def again(status: int = 503) -> httpx.Response:
    return httpx.Response(status, headers={"Retry-After": "0"})


@pytest.mark.parametrize("status", [408, 425, 429, 503])
def test_a_refusal_that_passes_is_waited_for(status: int) -> None:
    asking, sent = client(again(status), again(status), httpx.Response(200, json=PLAN))
    assert asking.get_plan("p").state == "running"
    assert len(sent) == 3


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, UnexpectedResponseError),
        (401, UnexpectedResponseError),
        (404, UnexpectedResponseError),
        (302, UnexpectedResponseError),
        (500, ServerError),
        (502, ServerError),
    ],
)
def test_a_refusal_that_stays_is_not_repeated(status: int, error: type[Exception]) -> None:
    asking, sent = client(httpx.Response(status, html="<h1>proxy</h1>"))
    with pytest.raises(error, match=str(status)):
        asking.get_plan("p")
    assert len(sent) == 1


def test_retries_are_bounded() -> None:
    asking, sent = client(*[again(429)] * 3, retries=2)
    with pytest.raises(ServiceBusyError) as caught:
        asking.get_plan("p")
    assert len(sent) == 3
    assert caught.value.retry_after_s == 0


def test_a_wait_longer_than_the_longest_is_not_made() -> None:
    asking, sent = client(httpx.Response(503, headers={"Retry-After": "86400"}))
    with pytest.raises(ServiceBusyError) as caught:
        asking.get_plan("p")
    assert caught.value.retry_after_s == 86_400
    assert len(sent) == 1


def test_a_broken_connection_is_tried_again_only_where_that_is_safe() -> None:
    policy = RetryPolicy(base_s=0.0)
    assert policy.wait_s(0, None) == 0
    reading, sent = client(httpx.ReadError("reset"), httpx.Response(200, json=PLAN), retries=1)
    assert reading.get_plan("p").id == "p"
    assert len(sent) == 2


def test_the_address_may_have_a_path() -> None:
    asking, sent = client(httpx.Response(200, json=PLAN))
    asking.get_plan("p")
    assert str(sent[0].url) == "http://service/base/v1/plans/p"


def test_fields_and_states_of_a_later_service_are_taken() -> None:
    asking, _ = client(httpx.Response(200, json={**PLAN, "state": "queued", "position": 3}))
    resource = asking.get_plan("p")
    assert (resource.state, resource.finished) == ("queued", False)


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"{}", b'{"id": "p"}', b"\xff"])
def test_an_answer_of_something_else_is_named(content: bytes) -> None:
    asking, _ = client(httpx.Response(200, content=content))
    with pytest.raises(UnexpectedResponseError, match="http://service/base/v1/plans/p"):
        asking.get_plan("p")


def test_a_problem_that_is_none_is_still_an_error() -> None:
    problem = {"Content-Type": "application/problem+json"}
    asking, _ = client(httpx.Response(404, content=b"[", headers=problem))
    with pytest.raises(UnexpectedResponseError):
        asking.get_plan("p")
    asking, _ = client(httpx.Response(404, json={"status": 404, "detail": "gone"}, headers=problem))
    with pytest.raises(NotFoundError, match="gone"):
        asking.get_plan("p")


def test_an_error_of_the_transport_is_one_of_the_tree() -> None:
    asking, _ = client(httpx.RemoteProtocolError("garbage"), retries=0)
    with pytest.raises(ServiceUnreachableError, match="garbage"):
        asking.get_plan("p")


def test_jitter_is_spread_and_grows() -> None:
    policy = RetryPolicy(most=5, base_s=1.0, longest_wait_s=8.0)
    for attempt in range(5):
        waits = [policy.wait_s(attempt, None) for _ in range(200)]
        assert all(wait is not None and 0 <= wait <= min(2**attempt, 8) for wait in waits)
        assert len(set(waits)) > 100
    assert policy.wait_s(5, None) is None


def test_retry_after_in_both_its_forms() -> None:
    assert retry_after_s(None) is None
    assert retry_after_s("soon") is None
    assert retry_after_s("-1") is None
    assert retry_after_s("12") == 12
    later = retry_after_s(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))
    assert later is not None
    assert 90 < later <= 100
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
