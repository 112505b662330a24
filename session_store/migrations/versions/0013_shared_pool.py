"""Line, leases and reports of a pool of workers that several gateways share (``serving.pool.shared``).

Only on PostgreSQL, because the processes that share a file are on one machine. The tables are unlogged: their
rows are what living gateways report, and are reported again after the server has recovered from a crash.
The sequence numbers the grants. It is not unlogged, so that a later one never gets the number of an earlier.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

UNLOGGED = ["UNLOGGED"]


def upgrade() -> None:
    """Create the tables."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("CREATE SEQUENCE pool_grant")
    op.create_table(
        "pool_member",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("line", sa.Text, nullable=False, index=True),
        # Counts its signs of life. Others measure by their own clocks how long it stays the same.
        sa.Column("beats", sa.BigInteger, nullable=False),
        prefixes=UNLOGGED,
    )
    op.create_table(
        "pool_report",
        _member(primary_key=True),
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("line", sa.Text, nullable=False, index=True),
        sa.Column("incarnation", sa.Text, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        # NULL: without a limit.
        sa.Column("kv_bytes", sa.BigInteger),
        prefixes=UNLOGGED,
    )
    op.create_table(
        "pool_request",
        sa.Column("ticket", sa.Text, primary_key=True),
        _member(index=True),
        *_conversation(),
        sa.Column("rank", sa.SmallInteger, nullable=False),
        sa.Column("handle_worker", sa.Text),
        sa.Column("handle_incarnation", sa.Text),
        # Reason for which an operator removed it; its member deletes the row.
        sa.Column("refused", sa.Text),
        sa.Index("pool_request_in_order", "line", "rank", "number", "ticket"),
        prefixes=UNLOGGED,
    )
    op.create_table(
        "pool_lease",
        sa.Column("ticket", sa.Text, primary_key=True),
        _member(),
        *_conversation(),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("incarnation", sa.Text, nullable=False),
        # Number of the grant, by which its member finds the new ones.
        sa.Column("granted", sa.BigInteger, nullable=False),
        sa.Column("granted_us", sa.BigInteger, nullable=False),
        sa.Index("pool_lease_by_member", "member", "granted"),
        sa.Index("pool_lease_by_worker", "line", "worker", "incarnation"),
        prefixes=UNLOGGED,
    )


def _member(*, primary_key: bool = False, index: bool = False) -> sa.Column[str]:
    # With a member, all that it holds is gone.
    return sa.Column(
        "member",
        sa.String(32),
        sa.ForeignKey("pool_member.id", ondelete="CASCADE"),
        nullable=False,
        primary_key=primary_key,
        index=index,
    )


def _conversation() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("line", sa.Text, nullable=False),
        # Time of its arrival by the clock of the database, by which it is ordered.
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("kv_bytes", sa.BigInteger, nullable=False),
        # By the clock of the database, for waiting times that people see.
        sa.Column("asked_us", sa.BigInteger, nullable=False),
    )
