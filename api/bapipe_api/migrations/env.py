"""Run by Alembic: brings the connection that it is given to a revision."""

from __future__ import annotations

from alembic import context

from bapipe_api.tables import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
