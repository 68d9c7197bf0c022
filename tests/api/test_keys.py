"""Who may use the service: keys, scopes, owners; and nobody from outside while there are none."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from bapipe_api import Settings
from bapipe_api import keys as keys_module
from bapipe_api.access import is_loopback
from bapipe_api.database import Database
from bapipe_api.keys import Keys
from bapipe_api.migrate import migrate
from serving.asking import SUBJECTS, Subject
from serving.processes import Service, end, start

WAIT = {"Prefer": "wait=60"}
NOTHING = "0" * 32
PARTS = ("", "/events", "/trace")


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    with Database(Settings(database_url=f"sqlite:///{tmp_path}/keys.sqlite3").url) as database:
        migrate(database)
        yield Keys(database)


class Guarded:
    """A service that asks for keys, and the keys."""

    def __init__(self, service: Service, keys: Keys, folder: Path) -> None:
        self.service, self.keys, self.folder = service, keys, folder

    def client(self, name: str = "a", scopes: tuple[str, ...] = ("read", "write"), token: str = "") -> httpx.Client:
        token = token or self.keys.create(name, scopes)
        return httpx.Client(base_url=self.service.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    service = start(folder, scripted=True)
    with Database(Settings(database_url=f"sqlite:///{folder}/plans.sqlite3").url) as database:
        keys = Keys(database)
        keys.create("first", ["read"])
        yield Guarded(service, keys, folder)
    end(service)


def refusal(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    code: str = response.json()["errors"][0]["code"]
    return code


def test_a_key_is_right_until_it_is_revoked(keys: Keys) -> None:
    assert not keys.exist()
    token = keys.create("team", ["write", "read"])
    key = keys.verify(token)
    assert key is not None
    assert (key.name, key.scopes, key.revoked_at) == ("team", {"read", "write"}, None)
    assert keys.revoke(key.id)
    assert keys.verify(token) is None
    assert keys.exist()
    assert not keys.revoke("0" * 16)
    assert [(one.id, one.revoked_at is not None) for one in keys.all()] == [(key.id, True)]


def test_only_the_hash_of_a_secret_is_stored(keys: Keys, tmp_path: Path) -> None:
    secret = keys.create("team", ["read"]).split("_", 2)[2]  # a secret may have a _ of its own
    assert not any(secret.encode() in path.read_bytes() for path in tmp_path.glob("keys.sqlite3*"))


def test_an_unknown_key_is_compared_as_a_wrong_one_is(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    token = keys.create("team", ["read"])
    compared = []
    real = keys_module.hmac.compare_digest
    monkeypatch.setattr(keys_module.hmac, "compare_digest", lambda *pair: compared.append(pair) or real(*pair))
    wrong = [f"{token[:-1]}{'A' if token[-1] != 'A' else 'B'}", f"bapipe_{'0' * 16}_{'x' * 43}", "nonsense", ""]
    assert [keys.verify(one) for one in wrong] == [None] * 4
    assert [(len(given), len(right)) for given, right in compared] == [(64, 64)] * 4


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer nonsense", f"Bearer bapipe_{'0' * 16}_{'x' * 43}", "Basic YTpi"]
)
@pytest.mark.parametrize(
    ("method", "path"),
    [*((method, subject.path) for subject in SUBJECTS for method in ("GET", "POST")), ("GET", "/metrics")],
)
def test_without_a_valid_key(guarded: Guarded, method: str, path: str, value: str) -> None:
    headers = {"Authorization": value} if value else {}
    response = httpx.request(method, guarded.service.url + path, headers=headers)
    assert refusal(response, 401) == "unauthorized"
    assert response.headers["www-authenticate"].startswith("Bearer")


def test_a_revoked_key_is_no_key(guarded: Guarded) -> None:
    token = guarded.keys.create("gone", ["read"])
    with guarded.client(token=token) as client:
        assert client.get("/v1/plans").status_code == 200
        guarded.keys.revoke(token.split("_")[1])
        assert refusal(client.get("/v1/plans"), 401) == "unauthorized"


@pytest.mark.parametrize(
    ("scope", "method", "path"),
    [
        *(("read", "POST", subject.path) for subject in SUBJECTS),
        *(("read", "DELETE", f"{subject.path}/{NOTHING}") for subject in SUBJECTS),
        *(("write", "GET", subject.path) for subject in SUBJECTS),
        *(("write", "GET", f"{subject.path}/{NOTHING}{part}") for subject in SUBJECTS for part in PARTS),
        ("read", "POST", "/v1/plans:validate"),
        ("read", "POST", "/v1/profiles:import"),
        ("write", "GET", "/v1/presets/devices"),
        ("write", "GET", "/v1/presets/profiles/vgg16"),
        ("write", "GET", "/metrics"),
    ],
)
def test_a_key_without_the_scope(guarded: Guarded, scope: str, method: str, path: str) -> None:
    with guarded.client(scopes=(scope,)) as client:
        assert refusal(client.request(method, path), 403) == "insufficient_scope"


def test_what_asks_for_no_key(guarded: Guarded) -> None:
    for path in ("/livez", "/readyz", "/openapi.json"):
        assert httpx.get(guarded.service.url + path).status_code == 200
    with guarded.client(scopes=("metrics",)) as client:
        assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.kind)
def test_anothers_job_is_not_told_from_one_that_is_not_there(guarded: Guarded, subject: Subject) -> None:
    with guarded.client("owner") as owner, guarded.client("other") as other, guarded.client("owner") as colleague:
        location = owner.post(subject.path, json=subject.asked(), headers=WAIT).headers["location"]
        for method, part in [("DELETE", ""), *(("GET", part) for part in PARTS)]:
            answers = [other.request(method, path + part) for path in (location, f"{subject.path}/{NOTHING}")]
            assert [refusal(answer, 404) for answer in answers] == ["not_found"] * 2
            assert answers[0].content == answers[1].content
        assert other.get(subject.path).json()[f"{subject.kind}s"] == []
        assert colleague.get(location).status_code == 200


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.kind)
def test_an_answer_is_shared_but_not_its_job(guarded: Guarded, subject: Subject) -> None:
    body = subject.asked()
    with guarded.client("one") as one, guarded.client("two") as two:
        first = one.post(subject.path, json=body, headers=WAIT)
        second = two.post(subject.path, json=body)
        assert (second.status_code, second.headers["cache"]) == (200, "hit")
        assert second.json()["id"] != first.json()["id"]
        assert second.json()[subject.kind] == first.json()[subject.kind]
        assert two.post(subject.path, json=body).json()["id"] == second.json()["id"]
        traces = [
            client.get(f"{subject.path}/{job.json()['id']}/trace") for client, job in ((one, first), (two, second))
        ]
        assert traces[0].content == traces[1].content
    with closing(sqlite3.connect(guarded.folder / "plans.sqlite3")) as connection:
        same = "SELECT count(*) FROM jobs WHERE result_id = (SELECT result_id FROM jobs WHERE id = ?)"
        assert connection.execute(same, (first.json()["id"],)).fetchone() == (2,)


def test_idempotency_keys_are_their_owners(guarded: Guarded, request_json: dict[str, Any]) -> None:
    headers = {"Idempotency-Key": "same"}
    with guarded.client("three") as one, guarded.client("four") as two:
        made = [
            client.post("/v1/plans", json={**request_json, "batch_size": size}, headers=headers).status_code
            for client, size in ((one, 128), (two, 256))
        ]
    assert made == [202, 202]


def test_without_keys_a_name_that_is_not_this_machines_is_refused(scripted: Service) -> None:
    for host, status in (("attacker.example", 403), ("localhost", 200), ("[::1]:80", 200)):
        assert httpx.get(scripted.url + "/v1/plans", headers={"Host": host}).status_code == status


def test_a_public_address_needs_keys(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="without keys nothing but this machine is served"):
        start(tmp_path, scripted=True, host="0.0.0.0")
    with Database(Settings(database_url=f"sqlite:///{tmp_path}/plans.sqlite3").url) as database:
        token = Keys(database).create("me", ["read"])
        Keys(database).revoke(token.split("_")[1])
    service = start(tmp_path, scripted=True, host="0.0.0.0")
    try:
        url = f"http://127.0.0.1:{httpx.URL(service.url).port}"
        assert refusal(httpx.get(f"{url}/v1/plans"), 401) == "unauthorized"
    finally:
        end(service)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.example", "", socket.gethostname() + ".x"])
def test_another_machine(host: str) -> None:
    assert not is_loopback(host)
