"""Statements that make a new SQLite file what the migrations make it, in a tenth of their time.

Written by ``python -m scripts.write_new_store``: change the migrations, not this module.
"""

# The revision that the statements lead to; later migrations follow them.
REVISION = "0017"
STATEMENTS = (
    """CREATE TABLE "event" (
    session_id VARCHAR(36) NOT NULL,
    seq BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    event_us BIGINT NOT NULL,
    arrival_us BIGINT NOT NULL,
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    speaker TEXT,
    final BOOLEAN NOT NULL,
    confidence DOUBLE NOT NULL,
    payload TEXT NOT NULL,
    "key" TEXT NOT NULL,
    PRIMARY KEY (session_id, seq),
    CONSTRAINT event_key UNIQUE ("key", session_id),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """CREATE TABLE call_code (
    tenant TEXT NOT NULL,
    code VARCHAR(16) NOT NULL,
    session_id VARCHAR(36) NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, code),
    UNIQUE (session_id),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """CREATE TABLE call_link (
    digest VARCHAR(64) NOT NULL,
    session_id VARCHAR(36) NOT NULL,
    holder VARCHAR(32) NOT NULL,
    last_us BIGINT NOT NULL,
    PRIMARY KEY (digest),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """CREATE TABLE caller (
    tenant TEXT NOT NULL,
    digest VARCHAR(64) NOT NULL,
    session_id VARCHAR(36) NOT NULL,
    last_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, digest),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """CREATE TABLE caller_session (
    digest VARCHAR(64) NOT NULL,
    session_id VARCHAR(36) NOT NULL,
    PRIMARY KEY (digest, session_id),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """CREATE TABLE retention (
    id INTEGER NOT NULL,
    time_us BIGINT NOT NULL,
    jump_us BIGINT NOT NULL,
    held_us BIGINT NOT NULL,
    PRIMARY KEY (id)
);""",
    """CREATE TABLE session (
    id VARCHAR(36) NOT NULL,
    tenant TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    next_seq BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    last_us BIGINT NOT NULL, owner TEXT, bytes BIGINT DEFAULT '0' NOT NULL, kv_handle TEXT,
    PRIMARY KEY (id)
)
 WITHOUT ROWID

;""",
    """CREATE TABLE session_comment (
    id VARCHAR(32) NOT NULL,
    session_id VARCHAR(36) NOT NULL,
    at_us BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    author TEXT NOT NULL,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """CREATE TABLE session_store_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT session_store_version_pkc PRIMARY KEY (version_num)
);""",
    """CREATE TABLE session_tag (
    tag TEXT NOT NULL,
    session_id VARCHAR(36) NOT NULL,
    PRIMARY KEY (tag, session_id),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """CREATE TABLE share_link (
    id VARCHAR(32) NOT NULL,
    session_id VARCHAR(36) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    until_seq BIGINT NOT NULL,
    created_us BIGINT NOT NULL,
    until_us BIGINT NOT NULL,
    revoked_us BIGINT,
    PRIMARY KEY (id),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """CREATE TABLE tenant_call (
    id VARCHAR(64) NOT NULL,
    tenant VARCHAR(64) NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (id)
)
 WITHOUT ROWID

;""",
    """CREATE TABLE tenant_report (
    reporter VARCHAR(32) NOT NULL,
    number BIGINT NOT NULL,
    reported_us BIGINT NOT NULL,
    PRIMARY KEY (reporter)
)
 WITHOUT ROWID

;""",
    """CREATE TABLE tenant_use (
    tenant VARCHAR(64) NOT NULL,
    period VARCHAR(8) NOT NULL,
    start_us BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    call_ms BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost_nano BIGINT NOT NULL,
    PRIMARY KEY (tenant, period, start_us)
)
 WITHOUT ROWID

;""",
    """CREATE TABLE token_request (
    budget VARCHAR(32) NOT NULL,
    requests BIGINT NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (budget)
)
 WITHOUT ROWID

;""",
    """CREATE TABLE used_token (
    token_id VARCHAR(32) NOT NULL,
    taker VARCHAR(16) NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (token_id)
)
 WITHOUT ROWID

;""",
    """CREATE TABLE vault_entry (
    name VARCHAR(32) NOT NULL,
    session_id VARCHAR(36) NOT NULL,
    kind TEXT NOT NULL,
    sealed TEXT NOT NULL,
    until_us BIGINT NOT NULL,
    PRIMARY KEY (name),
    FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
)
 WITHOUT ROWID

;""",
    """INSERT INTO "session_store_version" VALUES('0017');""",
    """CREATE INDEX call_link_by_age ON call_link (last_us);""",
    """CREATE INDEX call_link_by_session ON call_link (session_id);""",
    """CREATE INDEX caller_by_age ON caller (last_us);""",
    """CREATE INDEX caller_by_session ON caller (session_id);""",
    """CREATE INDEX caller_session_by_session ON caller_session (session_id);""",
    """CREATE INDEX event_by_time ON event (session_id, event_us, seq);""",
    """CREATE INDEX ix_token_request_until_us ON token_request (until_us);""",
    """CREATE INDEX ix_used_token_until_us ON used_token (until_us);""",
    """CREATE INDEX session_by_creation ON session (tenant, created_us, id);""",
    """CREATE INDEX session_by_owner ON session (owner);""",
    """CREATE INDEX session_comment_by_time ON session_comment (session_id, at_us, id);""",
    """CREATE INDEX session_tag_by_session ON session_tag (session_id);""",
    """CREATE INDEX share_link_by_end ON share_link (until_us);""",
    """CREATE INDEX share_link_by_session ON share_link (session_id, created_us);""",
    """CREATE INDEX tenant_call_by_tenant ON tenant_call (tenant, until_us);""",
    """CREATE INDEX vault_entry_by_end ON vault_entry (until_us);""",
    """CREATE INDEX vault_entry_by_session ON vault_entry (session_id);""",
)
