"""Contract of the session store for the context that a worker has of a session, on both databases."""

import pytest

from parley.core.errors import FencedError
from parley.session_store.store import SessionStore
from tests.contracts.test_session_store import opening, said, store, url  # noqa: F401
from tests.peers.postgres import postgres, postgres_url  # noqa: F401


async def test_a_context_is_kept_with_a_commit_and_read_with_the_next_claim(store: SessionStore):  # noqa: F811
    session = await store.create()
    writer = await store.claim(session.id)
    assert writer.kv_handle is None
    writer.note_kv_handle("first")
    assert writer.kv_handle == "first" and (await store.info(session.id)).kv_handle is None
    await writer.append(said("hello"))
    assert (await store.info(session.id)).kv_handle == "first"
    # A later commit without a new one leaves it as it is.
    await writer.append(said("again"))
    assert (await store.claim(session.id)).kv_handle == "first"
    assert '"first"' not in "".join([line async for line in store.export(session.id)])


async def test_a_superseded_gateway_does_not_replace_the_context_of_the_next(store: SessionStore):  # noqa: F811
    session = await store.create()
    old, new = await store.claim(session.id), await store.claim(session.id)
    new.note_kv_handle("new")
    await new.append(said("hello"))
    old.note_kv_handle("old")
    with pytest.raises(FencedError):
        await old.append(said("late"))
    assert (await store.info(session.id)).kv_handle == "new"
