"""The index of keys by key: those of a moment lie together, of all sessions, and not each with its session.

A commit of many sessions then writes one page of it or two instead of one for every session.
"""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Turn the columns of the constraint round."""
    with op.batch_alter_table("event", table_kwargs={"sqlite_with_rowid": False}) as event:
        event.drop_constraint("event_key", type_="unique")
        event.create_unique_constraint("event_key", ["key", "session_id"])
