"""Sessions in which a telephone number has called, by a digest of the number; sessions by their owner."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Create the table and the index."""
    op.create_table(
        "caller_session",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column(
            "session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Index("caller_session_by_session", "session_id"),
        sqlite_with_rowid=False,
    )
    # An append changes no owner, and so costs this index nothing.
    op.create_index("session_by_owner", "session", ["owner"])
