"""Order the index of keys by key: those of one moment lie together, whatever their sessions.

A commit of many sessions then writes one or two of its pages instead of one per session.
"""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Reverse the columns of the constraint."""
    with op.batch_alter_table("event", table_kwargs={"sqlite_with_rowid": False}) as event:
        event.drop_constraint("event_key", type_="unique")
        event.create_unique_constraint("event_key", ["key", "session_id"])
