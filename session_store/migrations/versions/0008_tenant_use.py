"""Use of tenants, and the size of each session."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the tables of use, and count the bytes of the sessions that are stored."""
    op.add_column("session", sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE session SET bytes = COALESCE("
        "(SELECT SUM(LENGTH(payload)) FROM event WHERE event.session_id = session.id), 0)"
    )
    op.create_table(
        "tenant_call",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("tenant_call_by_tenant", "tenant_call", ["tenant", "until_us"])
    op.create_table(
        "tenant_use",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("period", sa.String(8), primary_key=True),
        sa.Column("start_us", sa.BigInteger, primary_key=True, autoincrement=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("calls", "call_ms", "tokens", "cost_nano")
        ),
        sqlite_with_rowid=False,
    )
