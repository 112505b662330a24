from pathlib import Path

import pytest
from fastapi import FastAPI

from parley.core.errors import CapacityError, ConfigError, PeerError
from parley.serving.gateway.app import add_error_answers
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.client_keys import ClientKeys
from parley.serving.gateway.phone.call_code_api import caller_api
from parley.serving.gateway.phone.caller_directory import CallerDirectory
from parley.serving.gateway.phone.caller_settings import CallCodeTuning, CallerSettings
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.store import SessionStore, StoreTuning
from tests.peers.session_gateway import client_of

KEY = "k" * 32
NUMBER, CALLED = "+15550100", "+15550199"


@pytest.fixture
async def store(tmp_path):
    opened = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/s.db"))
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALLER_KEY", "k" * 32)


@pytest.mark.parametrize("given", ["", "short"])
async def test_numbers_need_a_key(store: SessionStore, monkeypatch: pytest.MonkeyPatch, given: str):
    monkeypatch.setenv("PARLEY_CALLER_KEY", given)
    with pytest.raises(ConfigError, match="PARLEY_CALLER_KEY"):
        CallerDirectory(store, CallerSettings(trust="any"))
    CallerDirectory(store, None, CallCodeTuning())


async def test_where_it_is_asked_for_a_carrier_has_to_vouch(store: SessionStore):
    book = CallerDirectory(store, CallerSettings(trust="attested"))
    assert book.digest_of(NUMBER, CALLED) is None
    assert book.digest_of(NUMBER, CALLED, verstat="TN-Validation-Passed-B") is None
    assert book.digest_of(NUMBER, CALLED, verstat="TN-Validation-Passed-A")


async def test_a_number_is_linked_for_the_number_that_is_called(store: SessionStore, tmp_path: Path):
    session = await store.create()
    book = CallerDirectory(store, CallerSettings(trust="any"))
    with pytest.raises(PeerError, match="the called number"):
        await book.link(session.id, NUMBER, None)
    with pytest.raises(PeerError, match="not withheld"):
        await book.link(session.id, "anonymous", CALLED)
    await book.link(session.id, NUMBER, CALLED)
    digest = book.digest_of(NUMBER, CALLED)
    assert digest is not None and await book.session_of(digest) == session.id
    # The number is not readable anywhere.
    files = [path.read_bytes() for path in tmp_path.iterdir()]
    assert any(digest.encode() in data for data in files)
    assert not any(NUMBER.encode() in data for data in files)


async def test_a_code_that_another_session_has_is_drawn_again(store: SessionStore):
    drawn = iter(["1111", "1111", "2222"])
    book = CallerDirectory(store, None, CallCodeTuning(digits=4), draw=lambda _digits: next(drawn))
    first, second = await store.create(), await store.create()
    assert [await book.new_code(first.id), await book.new_code(second.id)] == ["1111", "2222"]
    full = CallerDirectory(store, None, CallCodeTuning(most=1))
    with pytest.raises(CapacityError):
        await full.new_code((await store.create()).id)


async def test_who_guesses_too_much_keeps_everybody_out_for_a_while(store: SessionStore):
    book = CallerDirectory(store, None, CallCodeTuning(wrong_per_minute=2))
    session = await store.create()
    code = await book.new_code(session.id)
    wrong = "x"
    assert [await book.take_code(wrong) for _ in range(2)] == [None, None]
    assert await book.take_code(code) is None
    # That has not used the code.
    assert await CallerDirectory(store, None, CallCodeTuning()).take_code(code) == session.id


async def test_a_code_is_open_until_its_time_is_over(store: SessionStore):
    now_s = 100.0
    book = CallerDirectory(store, None, CallCodeTuning(expires_s=60), clock_s=lambda: now_s)
    assert not book.has_open_code
    await book.new_code((await store.create()).id)
    assert book.has_open_code
    now_s = 159.9
    assert book.has_open_code
    now_s = 160.0
    assert not book.has_open_code


async def test_codes_for_a_back_end_with_a_key_are_not_held_to_the_rate_of_an_address(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    settings = ServerTuning()
    keys = ClientKeys(settings)
    application = keys.application_of(KEY)
    assert application is not None
    app = FastAPI()
    add_error_answers(app)
    app.include_router(
        caller_api(
            CallerDirectory(store, None, CallCodeTuning(per_minute=1)),
            Conversations(store, compactor=Compactor()),
            settings,
            Access(settings, keys=keys),
            AdminAuth(settings),
        )
    )
    token = keys.mint(application, user="ann")
    session = (await store.create(owner=keys.read(token).owner)).id
    async with client_of(app) as client:

        async def statuses(credential: str) -> list[int]:
            headers = {"authorization": f"Bearer {credential}"}
            path = f"/api/sessions/{session}/call-code"
            return [(await client.post(path, headers=headers)).status_code for _ in range(3)]

        assert await statuses(KEY) == [201, 201, 201]
        assert await statuses(token) == [201, 429, 429]
