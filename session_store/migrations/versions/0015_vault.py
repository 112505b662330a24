"""Words that redaction replaced, encrypted."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "vault_entry",
        sa.Column("name", sa.String(32), primary_key=True),
        sa.Column(
            "session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.Index("vault_entry_by_session", "session_id"),
        sa.Index("vault_entry_by_end", "until_us"),
        sqlite_with_rowid=False,
    )
