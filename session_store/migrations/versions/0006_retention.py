"""Time by which retention deletes, which survives a restart with a wrong clock."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create its table, which has at most one row."""
    op.create_table(
        "retention",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time_us", sa.BigInteger, nullable=False),
        sa.Column("jump_us", sa.BigInteger, nullable=False),
        sa.Column("held_us", sa.BigInteger, nullable=False),
    )
