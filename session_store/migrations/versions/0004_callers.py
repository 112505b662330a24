"""Links from a caller's number, as a digest, and from a code to the session of the next phone call."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "caller",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column(
            "session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("last_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("caller_by_session", "caller", ["session_id"])
    op.create_index("caller_by_age", "caller", ["last_us"])
    op.create_table(
        "call_code",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("code", sa.String(16), primary_key=True),
        sa.Column(
            "session_id",
            sa.String(36),
            sa.ForeignKey("session.id", ondelete="CASCADE"),
            nullable=False,
            unique=True,
        ),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
