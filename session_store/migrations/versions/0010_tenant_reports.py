"""Numbers of the reports of tenants' use, so that one that comes twice is counted once."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "tenant_report",
        sa.Column("reporter", sa.String(32), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("reported_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
