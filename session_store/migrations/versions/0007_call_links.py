"""Links of phone calls, apart from the numbers of callers.

Links of calls that run during the upgrade stay among the numbers and are not found any more: such a call
ends when it loses its stream.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create their table."""
    op.create_table(
        "call_link",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column(
            "session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("last_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("call_link_by_session", "call_link", ["session_id"])
    op.create_index("call_link_by_age", "call_link", ["last_us"])
