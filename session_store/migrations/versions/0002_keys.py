"""Idempotency keys: an event that is sent again after a lost answer is stored once."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Give every event a key."""
    op.add_column("event", sa.Column("key", sa.Text))
    # These events are never sent again: a name that no writer uses is enough.
    op.execute("UPDATE event SET key = 'row.' || seq")
    # SQLite changes a column by copying the table. The copy needs the options that are not in the catalogue.
    with op.batch_alter_table("event", table_kwargs={"sqlite_with_rowid": False}) as event:
        event.alter_column("key", existing_type=sa.Text, nullable=False)
        event.create_unique_constraint("event_key", ["session_id", "key"])
