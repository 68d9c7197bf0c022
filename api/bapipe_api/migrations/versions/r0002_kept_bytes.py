"""How much is kept of each job, so that what is kept can be bounded in bytes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COUNTED = ("kind", "finished_at", "id", "result_id", "kept_bytes")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("kept_bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE jobs SET kept_bytes = length(request)"
        " + COALESCE((SELECT length(document) FROM results WHERE results.id = jobs.result_id), 0)"
        " WHERE finished_at IS NOT NULL"
    )
    op.drop_index("ix_jobs_finished_at", "jobs")
    op.create_index(f"ix_jobs_{'_'.join(COUNTED)}", "jobs", list(COUNTED))
