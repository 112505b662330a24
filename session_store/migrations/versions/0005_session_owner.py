"""Owner of a session: the client that created it, or NULL for the operator's."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; sessions of before are the operator's."""
    op.add_column("session", sa.Column("owner", sa.Text, nullable=True))
