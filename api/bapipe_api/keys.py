"""Keys: bearer tokens of which only a hash is stored, each with what it allows and whose plans it sees."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import select

from bapipe_api.database import Database
from bapipe_api.tables import KeyRow

SCOPES = {
    "read": "read plans, simulations, emulations, their events and files, and presets",
    "write": "submit and cancel plans, simulate, emulate, import, validate",
    "metrics": "read /metrics",
}
TOKEN = re.compile(r"bapipe_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
NO_HASH = "0" * 64
ASK_EVERY_S = 1.0
"""How often it is looked whether the first key was made."""


@dataclass(frozen=True)
class Key:
    """A key without its secret. Keys of one `name` share the plans that were made with them."""

    id: str
    name: str
    scopes: frozenset[str]
    created_at: datetime
    revoked_at: datetime | None


class Keys:
    """The keys in a database. Methods block; all are thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._exist = False
        self._asked_s = float("-inf")

    def create(self, name: str, scopes: Sequence[str]) -> str:
        """A new key, in words: the only time that its secret is seen."""
        key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        row = KeyRow(
            id=key_id,
            name=name,
            secret_hash=_hash(secret),
            scopes=" ".join(sorted(scopes)),
            created_at=datetime.now(UTC),
        )
        with self._database.write() as session:
            session.add(row)
        self._exist = True
        return f"bapipe_{key_id}_{secret}"

    def all(self) -> list[Key]:
        """Every key that was ever made, oldest first."""
        with self._database.read() as session:
            return [_key(row) for row in session.scalars(select(KeyRow).order_by(KeyRow.created_at, KeyRow.id))]

    def revoke(self, key_id: str) -> bool:
        """Ends a key for good; False when there is none of this id. Once revoked, it stays so."""
        with self._database.write() as session:
            row = session.get(KeyRow, key_id)
            if row is None:
                return False
            row.revoked_at = row.revoked_at or datetime.now(UTC)
            return True

    def exist(self) -> bool:
        """Whether a key was ever made: from then on, or a second later, one is asked for, be they all revoked."""
        if self.exist_for_all_we_know() is None:
            self._asked_s = time.monotonic()
            with self._database.read() as session:
                self._exist = session.scalar(select(KeyRow.id).limit(1)) is not None
        return self._exist

    def exist_for_all_we_know(self) -> bool | None:
        """`exist`, without asking the database; None when that must be asked. Does not block."""
        return self._exist if self._exist or time.monotonic() - self._asked_s < ASK_EVERY_S else None

    def verify(self, token: str) -> Key | None:
        """The key that `token` is, unless it is revoked. Takes as long for an unknown key as for a wrong secret."""
        match = TOKEN.fullmatch(token)
        key_id, secret = match.groups() if match else ("", "")
        with self._database.read() as session:
            row = session.get(KeyRow, key_id)
            right = hmac.compare_digest(_hash(secret), row.secret_hash if row else NO_HASH)
            return _key(row) if row is not None and right and row.revoked_at is None else None


def _hash(secret: str) -> str:
    """A secret of 256 random bits cannot be guessed from its hash, however fast that is to compute."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(row: KeyRow) -> Key:
    return Key(row.id, row.name, frozenset(row.scopes.split()), row.created_at, row.revoked_at)
