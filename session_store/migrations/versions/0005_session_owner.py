"""Owner of a session: the client that created it, or NULL for the operator."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; existing sessions belong to the operator."""
    op.add_column("session", sa.Column("owner", sa.Text, nullable=True))
