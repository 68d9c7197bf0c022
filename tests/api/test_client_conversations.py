"""The client against answers that our own service does not give, or not at will: its core, without a network."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from bapipe.faults import parse
from bapipe.problem import PlanRequest
from bapipe_client import (
    AsyncClient,
    AsyncJob,
    AsyncPlanJob,
    Client,
    InvalidInputError,
    Job,
    NotAllowedError,
    NotFoundError,
    PlanJob,
    ServerError,
    ServiceBusyError,
    ServiceUnreachableError,
    StillRunningError,
    UnexpectedResponseError,
)
from bapipe_client._retries import RetryPolicy, retry_after_s

PLAN = {"id": "p", "state": "running", "created_at": "2030-01-01T00:00:00Z"}

Answer = Callable[[httpx.Request], httpx.Response]


def client(
    *answers: httpx.Response | Exception, retries: int = 3, **options: Any
) -> tuple[Client, list[httpx.Request]]:
    """A client that is given `answers`, one a request, and the requests that it sends."""
    sent: list[httpx.Request] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    return Client("http://service/base/", retries=retries, transport=httpx.MockTransport(answer), **options), sent


def again(status: int = 503) -> httpx.Response:
    return httpx.Response(status, headers={"Retry-After": "0"})


@pytest.mark.parametrize("status", [408, 425, 429, 502, 503, 504])
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
        (501, ServerError),
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


def test_a_broken_connection_is_tried_again() -> None:
    reading, sent = client(httpx.ReadError("reset"), httpx.Response(200, json=PLAN), retries=1)
    assert reading.get_plan("p").id == "p"
    assert len(sent) == 2


def test_a_submission_is_sent_again_under_the_same_key(request_json: dict[str, Any]) -> None:
    asking, sent = client(httpx.ReadError("reset"), again(), httpx.Response(202, json=PLAN))
    job = asking.submit(parse(PlanRequest, request_json))
    assert (job.id, job.state) == ("p", "running")
    keys = {request.headers["idempotency-key"] for request in sent}
    assert (len(sent), len(keys)) == (3, 1)
    other, more = client(httpx.Response(202, json=PLAN))
    other.submit(parse(PlanRequest, request_json))
    assert more[0].headers["idempotency-key"] not in keys


def test_waits_between_retries_are_spread_and_not_shorter_than_was_asked() -> None:
    policy = RetryPolicy(base_s=0.5, longest_wait_s=4.0)
    waits = [policy.wait_s(attempt, None) for attempt in (0, 1, 2) for _ in range(50)]
    assert all(wait is not None for wait in waits)
    assert max(filter(None, waits[:50])) <= 0.5
    assert len(set(waits)) > 100
    asked = [policy.wait_s(0, 3.0) or 0.0 for _ in range(50)]
    assert min(asked) >= 3.0
    assert max(asked) <= 3.5
    assert policy.wait_s(0, 5.0) is None
    assert policy.wait_s(3, None) is None


def test_a_key_is_sent_and_its_refusal_is_told() -> None:
    problem = {"Content-Type": "application/problem+json"}
    refusal = httpx.Response(401, json={"status": 401, "detail": "a valid key is needed"}, headers=problem)
    asking, sent = client(refusal, api_key="bapipe_x_y")
    with pytest.raises(NotAllowedError, match="a valid key is needed") as caught:
        asking.get_plan("p")
    assert caught.value.status == 401
    assert sent[0].headers["authorization"] == "Bearer bapipe_x_y"


def stream(*lines: str) -> httpx.Response:
    return httpx.Response(200, content="\n".join(lines) + "\n", headers={"Content-Type": "text/event-stream"})


def event(sequence: int, state: str, kind: str = "progress") -> str:
    return f'id: {sequence}\nevent: {kind}\ndata: {{"state": "{state}", "phase": "", "new": 1}}\n'


def test_events_go_on_after_a_broken_connection_where_they_were() -> None:
    asking, sent = client(
        httpx.Response(200, json=PLAN),
        stream("retry: 2000", "", ": nothing new", "", event(1, "queued"), "id: 2", "data: {half"),
        again(),
        httpx.ReadError("reset"),
        stream(event(3, "running"), event(5, "succeeded", "end"), event(6, "never")),
    )
    found = list(asking.job("p").events())
    assert [(one.sequence, one.state, one.finished) for one in found] == [
        (1, "queued", False),
        (3, "running", False),
        (5, "succeeded", True),
    ]
    assert [request.headers.get("last-event-id") for request in sent[1:]] == [None, "1", "1", "1"]


def test_events_that_were_all_seen_end_at_once_and_a_refusal_is_told() -> None:
    asking, _ = client(httpx.Response(200, json=PLAN), httpx.Response(204), httpx.Response(500))
    job = asking.job("p")
    assert list(job.events()) == []
    with pytest.raises(ServerError):
        list(job.events())


def test_pages_are_read_as_they_are_needed() -> None:
    pages = [{"plans": [{**PLAN, "id": "a"}], "next_page_token": "t"}, {"plans": [{**PLAN, "id": "b"}]}]
    asking, sent = client(*(httpx.Response(200, json=page) for page in pages))
    listed = asking.plans(states=["failed"], page_size=1)
    assert next(listed).id == "a"
    assert len(sent) == 1
    assert [one.id for one in listed] == ["b"]
    assert [dict(request.url.params) for request in sent] == [
        {"page_size": "1", "state": "failed"},
        {"page_size": "1", "state": "failed", "page_token": "t"},
    ]


def test_a_wait_has_an_end() -> None:
    asking, _ = client(*[httpx.Response(200, json=PLAN) for _ in range(3)])
    with pytest.raises(StillRunningError, match="still running") as caught:
        asking.job("p").wait(timeout_s=0.0)
    assert caught.value.job_id == "p"


def test_both_clients_can_do_the_same() -> None:
    for one, other in ((Client, AsyncClient), (Job, AsyncJob), (PlanJob, AsyncPlanJob)):
        members = {name: value for name, value in vars(one).items() if not name.startswith("_")}
        assert members.keys() == {name for name in vars(other) if not name.startswith("_")}
        for name, value in members.items():
            if callable(value) and name != "close":
                there = inspect.signature(getattr(other, name))
                assert list(inspect.signature(value).parameters.values())[1:] == list(there.parameters.values())[1:]


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


@pytest.mark.parametrize(
    "ask",
    [
        Client.devices,
        Client.links,
        Client.clusters,
        Client.examples,
        lambda asking: asking.example("vgg16"),
        lambda asking: list(asking.plans()),
        lambda asking: asking.get_plan("p"),
    ],
)
@pytest.mark.parametrize("content", ["<h1>Sign in</h1>", "[1]", '{"x": 1}'])
def test_what_is_no_service_is_said_to_be_none(ask: Callable[[Client], object], content: str) -> None:
    asking, _ = client(httpx.Response(200, text=content))
    with pytest.raises(UnexpectedResponseError, match="this client cannot read"):
        ask(asking)


@pytest.mark.parametrize("content", ["<h1>Sign in</h1>", '{"status": "starting"}'])
def test_what_is_no_service_is_not_ready(content: str) -> None:
    assert not client(httpx.Response(200, text=content))[0].ready()


@pytest.mark.parametrize("key", ["two words", "a\nb", "ключ"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_key_that_is_none_is_not_sent_and_not_shown(kind: type[Client], key: str) -> None:
    with pytest.raises(NotAllowedError, match="is no key") as caught:
        kind("http://service", api_key=key)
    assert key not in str(caught.value)


def test_a_key_from_a_file_has_no_line_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAPIPE_API_KEY", "bapipe_key\n")
    asking, sent = client(httpx.Response(200, json=PLAN))
    asking.get_plan("p")
    assert sent[0].headers["Authorization"] == "Bearer bapipe_key"


@pytest.mark.parametrize("key", ["", "a b", "ключ", "x" * 256])
def test_an_idempotency_key_that_is_none(key: str, request_json: dict[str, Any]) -> None:
    asking, sent = client()
    with pytest.raises(InvalidInputError, match="wrong_idempotency_key"):
        asking.submit(parse(PlanRequest, request_json), idempotency_key=key)
    assert sent == []


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("variable", "value"), [("ALL_PROXY", "gopher://127.0.0.1:1"), ("SSL_CERT_FILE", "/nowhere/at/all")]
)
def test_an_environment_that_reaches_nothing(
    kind: type[Client], variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ServiceUnreachableError) as caught:
        kind("http://me:secret@service")
    assert not caught.value.may_have_arrived
    assert "secret" not in str(caught.value)


def test_a_password_in_the_address_is_not_shown() -> None:
    asking = Client("http://me:secret@127.0.0.1:1", retries=0)
    with pytest.raises(ServiceUnreachableError) as caught:
        asking.get_plan("p")
    assert "secret" not in str(caught.value)
    asking = Client("http://me:secret@x", transport=httpx.MockTransport(lambda request: httpx.Response(500)))
    with pytest.raises(ServerError, match="answered 500") as refused:
        asking.get_plan("p")
    assert "secret" not in str(refused.value)


def test_a_name_that_is_no_unicode_is_asked_for_and_not_found() -> None:
    refusal = httpx.Response(404, json={"status": 404}, headers={"Content-Type": "application/problem+json"})
    asking, sent = client(*[refusal] * 3)
    for ask in (lambda: asking.job("\udcff"), lambda: asking.example("\udcff"), lambda: asking.export("p", "\udcff")):
        with pytest.raises(NotFoundError):
            ask()
    assert all(request.url.raw_path.endswith(b"/%3F") for request in sent)
