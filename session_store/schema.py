"""Tables as the newest migration leaves them.

A claim updates its row of ``session``, and every append locks it; rows of ``event`` are only inserted. A
session's events lie together on disk, in order of commit. ``caller`` and ``call_code`` name the session of a
caller's next phone call (``callers``), ``caller_session`` those in which a number has called, ``call_link``
that of a running one (``call_links``), ``share_link``
the links by which a session is read without a credential (``share_links``), and ``session_comment`` what
readers noted (``comments``), ``vault_entry`` what redaction replaced, encrypted (``vault``), and
``session_tag`` the tags of a session (``tags``); they are deleted with their session. ``retention`` holds the
time by which retention deletes. ``tenant_call`` and ``tenant_use`` count the use of tenants, and
``tenant_report`` says which reports of it are counted (``tenant_use``). ``used_token`` holds the tokens that
have begun a conversation (``used_tokens``), and ``token_request`` counts the model requests of tokens with a
total (``token_requests``). The tables of a shared pool (``serving.pool.shared``), which have no rows that
last, are in their migration only.
"""

import sqlalchemy as sa

# Not alembic's default name: the database may be shared with a program that has its own migrations.
VERSION_TABLE = "session_store_version"
# The newest revision in ``migrations/versions``.
HEAD = "0017"

metadata = sa.MetaData()

session_table = sa.Table(
    "session",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("next_seq", sa.BigInteger, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    # The latest time in any of its events. Without an index: every append writes it, and only retention reads
    # it.
    sa.Column("last_us", sa.BigInteger, nullable=False),
    # Digest of the client that created it (``core.grants``); NULL: the operator.
    sa.Column("owner", sa.Text),
    # Sum of the payloads of its events.
    sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0"),
    # Context that a worker has of it; NULL: none (``models.llm.hosted.session_cache``).
    sa.Column("kv_handle", sa.Text),
    sa.Index("session_by_creation", "tenant", "created_us", "id"),
    # By it everything of a person is found (``people``). An append changes no owner.
    sa.Index("session_by_owner", "owner"),
    sqlite_with_rowid=False,
)

event_table = sa.Table(
    "event",
    metadata,
    sa.Column("session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("event_us", sa.BigInteger, nullable=False),
    sa.Column("arrival_us", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("speaker", sa.Text),
    sa.Column("final", sa.Boolean(create_constraint=False), nullable=False),
    sa.Column("confidence", sa.Double, nullable=False),
    # JSON as ASCII text and not the database's own type. The bytes are the same in every database, in an
    # export and under its digest, and a NUL in a transcript is an escape like any other.
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    # The key comes first: the store's own keys begin with the time (``events.new_key``), so that those of one
    # moment lie together, whatever their sessions.
    sa.UniqueConstraint("key", "session_id", name="event_key"),
    sa.Index("event_by_time", "session_id", "event_us", "seq"),
    sqlite_with_rowid=False,
)

caller_table = sa.Table(
    "caller",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    # Digest of the number, under a key that the database does not hold.
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False),
    # Time at which the number was last seen.
    sa.Column("last_us", sa.BigInteger, nullable=False),
    sa.Index("caller_by_session", "session_id"),
    sa.Index("caller_by_age", "last_us"),
    sqlite_with_rowid=False,
)

caller_session_table = sa.Table(
    "caller_session",
    metadata,
    # Digest of the number alone, whichever number it called (``protocols.phone_numbers``), under a key that
    # the database does not hold. The row lives as long as its session, so that everything of a caller can be
    # found.
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True),
    sa.Index("caller_session_by_session", "session_id"),
    sqlite_with_rowid=False,
)

call_code_table = sa.Table(
    "call_code",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("code", sa.String(16), primary_key=True),
    # A session has at most one code.
    sa.Column(
        "session_id",
        sa.String(36),
        sa.ForeignKey("session.id", ondelete="CASCADE"),
        nullable=False,
        unique=True,
    ),
    sa.Column("until_us", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

call_link_table = sa.Table(
    "call_link",
    metadata,
    # Digest of the call's id; with a number after it, of a stream that the call has lost.
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False),
    # Name of the stream that wrote it, or that was lost.
    sa.Column("holder", sa.String(32), nullable=False),
    sa.Column("last_us", sa.BigInteger, nullable=False),
    sa.Index("call_link_by_session", "session_id"),
    sa.Index("call_link_by_age", "last_us"),
    sqlite_with_rowid=False,
)

share_link_table = sa.Table(
    "share_link",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False),
    # SHA-256 of the secret, which the database does not hold.
    sa.Column("digest", sa.String(64), nullable=False),
    # The newest event that the link shows.
    sa.Column("until_seq", sa.BigInteger, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Column("until_us", sa.BigInteger, nullable=False),
    sa.Column("revoked_us", sa.BigInteger),
    sa.Index("share_link_by_session", "session_id", "created_us"),
    sa.Index("share_link_by_end", "until_us"),
    sqlite_with_rowid=False,
)

session_comment_table = sa.Table(
    "session_comment",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False),
    # Time of the session that it is about.
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    # Digest of the client that wrote it (``core.grants``); empty: the operator, or an unknown client.
    sa.Column("author", sa.Text, nullable=False),
    # Shown name of the author.
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Index("session_comment_by_time", "session_id", "at_us", "id"),
    sqlite_with_rowid=False,
)

vault_entry_table = sa.Table(
    "vault_entry",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    # The words, encrypted, in base64; the database does not hold the key.
    sa.Column("sealed", sa.Text, nullable=False),
    sa.Column("until_us", sa.BigInteger, nullable=False),
    sa.Index("vault_entry_by_session", "session_id"),
    sa.Index("vault_entry_by_end", "until_us"),
    sqlite_with_rowid=False,
)

session_tag_table = sa.Table(
    "session_tag",
    metadata,
    # Its newest event of tags has the same. The tag comes first: sessions are looked for by it.
    sa.Column("tag", sa.Text, primary_key=True),
    sa.Column("session_id", sa.String(36), sa.ForeignKey("session.id", ondelete="CASCADE"), primary_key=True),
    sa.Index("session_tag_by_session", "session_id"),
    sqlite_with_rowid=False,
)

retention_table = sa.Table(
    "retention",
    metadata,
    # Always 1: there is one time.
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time_us", sa.BigInteger, nullable=False),
    sa.Column("jump_us", sa.BigInteger, nullable=False),
    sa.Column("held_us", sa.BigInteger, nullable=False),
)

tenant_call_table = sa.Table(
    "tenant_call",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("tenant", sa.String(64), nullable=False),
    # Time at which the call is over, unless its process renews it.
    sa.Column("until_us", sa.BigInteger, nullable=False),
    sa.Index("tenant_call_by_tenant", "tenant", "until_us"),
    sqlite_with_rowid=False,
)

tenant_use_table = sa.Table(
    "tenant_use",
    metadata,
    sa.Column("tenant", sa.String(64), primary_key=True),
    sa.Column("period", sa.String(8), primary_key=True),
    sa.Column("start_us", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("calls", sa.BigInteger, nullable=False),
    sa.Column("call_ms", sa.BigInteger, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("cost_nano", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

tenant_report_table = sa.Table(
    "tenant_report",
    metadata,
    # Process of a gateway; another one after each start.
    sa.Column("reporter", sa.String(32), primary_key=True),
    # The newest of its reports that is counted.
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("reported_us", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

used_token_table = sa.Table(
    "used_token",
    metadata,
    sa.Column("token_id", sa.String(32), primary_key=True),
    # Process that used it up.
    sa.Column("taker", sa.String(16), nullable=False),
    # When the row may be deleted.
    sa.Column("until_us", sa.BigInteger, nullable=False, index=True),
    sqlite_with_rowid=False,
)

token_request_table = sa.Table(
    "token_request",
    metadata,
    # Of a token and of those that renew it.
    sa.Column("budget", sa.String(32), primary_key=True),
    sa.Column("requests", sa.BigInteger, nullable=False),
    # When the row may be deleted.
    sa.Column("until_us", sa.BigInteger, nullable=False, index=True),
    sqlite_with_rowid=False,
)
