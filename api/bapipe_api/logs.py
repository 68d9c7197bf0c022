"""The log, on stderr: lines for people on a terminal, JSON objects elsewhere; each says which job it is about."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

job_id_of_thread: ContextVar[str | None] = ContextVar("job_id", default=None)
"""The job that this thread works on; a record may name another one (`extra={"job_id": …}`)."""

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LogFormat = Literal["auto", "text", "json"]


class TextLines(logging.Formatter):
    """A line, and the job that it is about."""

    def format(self, record: logging.LogRecord) -> str:
        line, job_id = super().format(record), _job_id(record)
        return line if job_id is None else f"{line} [job {job_id}]"


class JsonLines(logging.Formatter):
    """An object a line. A traceback is text in it."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (job_id := _job_id(record)) is not None:
            entry["job_id"] = job_id
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure_logging(form: LogFormat) -> None:
    """Sends the log of the whole process to stderr. `auto`: text where that is a terminal."""
    as_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler()
    handler.setFormatter(TextLines(TEXT) if as_text else JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("alembic", "procrastinate", "psycopg"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _job_id(record: logging.LogRecord) -> str | None:
    given: str | None = getattr(record, "job_id", None)
    return given or job_id_of_thread.get()
