"""Model requests of tokens with a total, counted over all processes."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "token_request",
        sa.Column("budget", sa.String(32), primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False, index=True),
        sqlite_with_rowid=False,
    )
