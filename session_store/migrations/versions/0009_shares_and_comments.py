"""Links by which a session is read without a credential, and comments on a session."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "share_link",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("until_seq", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.Column("revoked_us", sa.BigInteger),
        sqlite_with_rowid=False,
    )
    op.create_index("share_link_by_session", "share_link", ["session_id", "created_us"])
    op.create_index("share_link_by_end", "share_link", ["until_us"])
    op.create_table(
        "session_comment",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("session_comment_by_time", "session_comment", ["session_id", "at_us", "id"])
