"""Transactions that link phone callers, and codes, to sessions.

A caller is identified by a digest of the number under a key of the deployment. The database holds no
telephone numbers, and access to it alone does not allow trying all of them. A code refers to one session, can
be used once, and expires after some minutes. It is stored in plain text, because a reader of the database can
read the sessions as well. Both are deleted with their session. ``people`` finds the sessions of a number.

Plain functions over a connection, the same for both databases.
"""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from parley.core.errors import UnknownSessionError
from parley.session_store.rows import shown_id
from parley.session_store.schema import call_code_table, caller_session_table, caller_table, session_table

_caller = caller_table.c
_code = call_code_table.c


def put_caller(
    connection: sa.Connection, *, tenant: str, digest: str, session_id: str, now_us: int, forget_us: int
) -> None:
    """Link the next call of a number to a session; delete numbers that were not seen since ``forget_us``.

    Raises:
        UnknownSessionError: there is no such session.
    """
    check_session(connection, session_id)
    connection.execute(sa.delete(caller_table).where(_caller.last_us < forget_us))
    # When two calls arrive at the same time, either may win: an upsert waits, an insert would be refused.
    made = postgresql if connection.dialect.name == "postgresql" else sqlite
    changed = {"session_id": session_id, "last_us": now_us}
    connection.execute(
        made.insert(caller_table)
        .values(tenant=tenant, digest=digest, **changed)
        .on_conflict_do_update(index_elements=["tenant", "digest"], set_=changed)
    )


def read_caller(connection: sa.Connection, *, tenant: str, digest: str, since_us: int) -> str | None:
    """Return the session of a number that was seen since ``since_us``; None when there is none."""
    return connection.scalar(
        sa.select(_caller.session_id).where(
            _caller.tenant == tenant, _caller.digest == digest, _caller.last_us >= since_us
        )
    )


def drop_callers(connection: sa.Connection, *, session_id: str) -> int:
    """Delete the numbers of a session; return how many continued it."""
    connection.execute(sa.delete(caller_session_table).where(caller_session_table.c.session_id == session_id))
    return connection.execute(sa.delete(caller_table).where(_caller.session_id == session_id)).rowcount


def put_code(
    connection: sa.Connection,
    *,
    tenant: str,
    code: str,
    session_id: str,
    now_us: int,
    until_us: int,
    most: int,
) -> bool:
    """Link a code to a session, in place of its former code.

    Returns:
        False when another session has the same code, or there are ``most`` codes already.

    Raises:
        UnknownSessionError: there is no such session.
    """
    check_session(connection, session_id)
    old = (_code.until_us <= now_us) | (_code.session_id == session_id)
    connection.execute(sa.delete(call_code_table).where(old))
    count = connection.scalar(sa.select(sa.func.count()).select_from(call_code_table)) or 0
    if count >= most:
        return False
    made = postgresql if connection.dialect.name == "postgresql" else sqlite
    return bool(
        connection.execute(
            made.insert(call_code_table)
            .values(tenant=tenant, code=code, session_id=session_id, until_us=until_us)
            .on_conflict_do_nothing()
        ).rowcount
    )


def take_code(connection: sa.Connection, *, tenant: str, code: str, now_us: int) -> str | None:
    """Use up a code and return its session; None when there is no such code."""
    return connection.scalar(
        sa.delete(call_code_table)
        .where(_code.tenant == tenant, _code.code == code, _code.until_us > now_us)
        .returning(_code.session_id)
    )


def check_session(connection: sa.Connection, session_id: str) -> None:
    """Check that a session exists.

    Raises:
        UnknownSessionError: there is no such session.
    """
    found = connection.scalar(sa.select(session_table.c.id).where(session_table.c.id == session_id))
    if found is None:
        raise UnknownSessionError(f"there is no session {shown_id(session_id)}")
