"""Tokens that began a conversation, so that none begins another one on any process."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "used_token",
        sa.Column("token_id", sa.String(32), primary_key=True),
        sa.Column("taker", sa.String(16), nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False, index=True),
        sqlite_with_rowid=False,
    )
