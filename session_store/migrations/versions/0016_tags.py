"""Tags of sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "session_tag",
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Column(
            "session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Index("session_tag_by_session", "session_id"),
        sqlite_with_rowid=False,
    )
