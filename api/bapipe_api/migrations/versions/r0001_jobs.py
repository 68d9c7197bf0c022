"""Jobs, their results and events, keys and workers; on PostgreSQL also the tables of the queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_jobs()
    op.create_table(
        "events",
        sa.Column("job_id", sa.Text, sa.ForeignKey("jobs.id", ondelete="CASCADE", name="fk_events_job_id")),
        sa.Column("sequence", sa.Integer),
        sa.Column("data", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "sequence", name="pk_events"),
    )
    op.create_table(
        "idempotency",
        sa.Column("owner", sa.Text),
        sa.Column("key", sa.Text),
        sa.Column("body_hash", sa.Text, nullable=False),
        sa.Column(
            "job_id",
            sa.Text,
            sa.ForeignKey("jobs.id", ondelete="CASCADE", name="fk_idempotency_job_id"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("owner", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_job_id", "idempotency", ["job_id"])
    _create_the_rest()
    if op.get_bind().dialect.name == "postgresql":
        _create_queue()


def _create_jobs() -> None:
    op.create_table(
        "results",
        sa.Column("id", sa.Text),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_results"),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("started_at", sa.DateTime),
        sa.Column("finished_at", sa.DateTime),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("cache_key", sa.Text),
        sa.Column("result_id", sa.Text, sa.ForeignKey("results.id", name="fk_jobs_result_id")),
        sa.Column("error", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("lease_token", sa.Text),
        sa.Column("lease_until", sa.Float(53)),
        sa.Column("last_event", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_owner_created_at_id", "jobs", ["owner", "created_at", "id"])
    op.create_index("ix_jobs_state_created_at", "jobs", ["state", "created_at"])
    for column in ("finished_at", "cache_key", "result_id"):
        op.create_index(f"ix_jobs_{column}", "jobs", [column])


def _create_the_rest() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.Text),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("secret_hash", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("revoked_at", sa.DateTime),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text),
        sa.Column("seen_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )
    op.create_table(
        "checks",
        sa.Column("id", sa.Integer),
        sa.Column("checked_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_checks"),
    )


def _create_queue() -> None:
    """Procrastinate's tables, as the release that this revision is pinned to makes them."""
    from procrastinate.schema import SchemaManager

    cursor = op.get_bind().connection.cursor()
    cursor.execute(SchemaManager.get_schema())
