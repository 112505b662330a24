"""Context that a worker has of a session (``models.llm.hosted.session_cache``)."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column."""
    op.add_column("session", sa.Column("kv_handle", sa.Text))
