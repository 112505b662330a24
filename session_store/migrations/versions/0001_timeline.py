"""Sessions and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "session",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("next_seq", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("last_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("session_by_creation", "session", ["tenant", "created_us", "id"])
    op.create_table(
        "event",
        sa.Column(
            "session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("event_us", sa.BigInteger, nullable=False),
        sa.Column("arrival_us", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("speaker", sa.Text),
        sa.Column("final", sa.Boolean(create_constraint=False), nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("event_by_time", "event", ["session_id", "event_us", "seq"])
