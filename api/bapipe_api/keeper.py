"""Stores how searches ended, however long that takes: a full disk costs nobody a plan."""

from __future__ import annotations

import logging
import threading

from sqlalchemy.exc import NoResultFound, SQLAlchemyError

from bapipe_api.store import Record, Store

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0

log = logging.getLogger(__name__)


class Keeper:
    """Last records on their way into the store. What cannot be stored is held in memory, and tried again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: dict[str, Record] = {}
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="keeper", daemon=True)
        self._thread.start()

    def keep(self, record: Record) -> None:
        """Stores `record`, now or later."""
        if not self._saved(record):
            with self._guard:
                self._unsaved[record.id] = record

    def unsaved(self, plan_id: str) -> Record | None:
        """The record of this plan, if it is not stored yet."""
        with self._guard:
            return self._unsaved.get(plan_id)

    def count(self) -> int:
        """How many records are not stored yet."""
        with self._guard:
            return len(self._unsaved)

    def close(self) -> None:
        """Tries once more; what cannot be stored even then is lost, and said in the log."""
        self._closing.set()
        self._thread.join()
        if not self._save_all():
            log.error("the results of %d searches could not be stored, and are lost", self.count())

    def _repeat(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closing.wait(pause_s):
            pause_s = FIRST_PAUSE_S if self._save_all() else min(2 * pause_s, LONGEST_PAUSE_S)

    def _save_all(self) -> bool:
        """Stops at the first record that cannot be stored: the next one would not be either."""
        with self._guard:
            records = list(self._unsaved.values())
        for record in records:
            if not self._saved(record):
                return False
            with self._guard:
                del self._unsaved[record.id]
        return True

    def _saved(self, record: Record) -> bool:
        """Whether nothing is left to do: a plan that somebody took out of the store is not put back."""
        try:
            self._store.finish(record)
        except NoResultFound:
            log.error("plan %s: it is no longer in the store", record.id)
        except SQLAlchemyError as error:
            log.error("plan %s: its end could not be stored; it will be tried again: %s", record.id, _reason(error))
            return False
        return True


def _reason(error: SQLAlchemyError) -> str:
    """Without the statement, whose parameters may be megabytes."""
    return str(getattr(error, "orig", None) or type(error).__name__)
