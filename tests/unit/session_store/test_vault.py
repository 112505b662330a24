"""Vault of redacted words over a real store."""

import base64
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from parley.core.errors import ConfigError, UnknownSessionError
from parley.core.privacy import PersonalData, PrivacySettings, VaultSettings
from parley.language import find_language
from parley.language.personal_data import HiddenPart, Redactor
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.session_store.vault import VAULT_KEYS_ENV, Vault, VaultKeyError, VaultKeys, open_vault

CARD = "4242 4242 4242 4242"
KEY, OTHER = bytes(range(32)), bytes(32)
PART = HiddenPart(PersonalData.PAYMENT_CARD, CARD)
DAY_US = 86_400_000_000


class Wall:
    """Wall clock of the test."""

    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000

    def now_us(self) -> int:
        return self.us


@asynccontextmanager
async def opened(folder: Path, wall: Wall | None = None) -> AsyncIterator[SessionStore]:
    url = f"sqlite:///{folder}/sessions.db"
    wall = wall or Wall()
    store = await SessionStore.open(StoreTuning(url=url), now_us=wall.now_us)
    try:
        yield store
    finally:
        await store.close()


def vault_of(store: SessionStore, *keys: bytes, days: float = 30) -> Vault:
    return Vault(store, VaultSettings(retention_days=days), VaultKeys(keys or (KEY,)))


def rows(folder: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(folder / "sessions.db")) as connection:
        return list(connection.execute("SELECT name, session_id, kind, sealed FROM vault_entry"))


async def test_words_are_read_by_their_names_and_are_nowhere_in_the_clear(tmp_path: Path):
    async with opened(tmp_path) as store:
        vault, session = vault_of(store), (await store.create()).id
        names = await vault.keep(session, "turn", [PART, HiddenPart(PersonalData.EMAIL, "a@b.org")])
        found = await vault.reveal(session, [*reversed(names), "0" * 32])
        assert [(each.kind, each.words) for each in found] == [
            (PersonalData.EMAIL, "a@b.org"),
            (PersonalData.PAYMENT_CARD, CARD),
        ]
        # A repeated turn has the same entries.
        assert await vault.keep(session, "turn", [PART]) == names[:1]
        assert len(rows(tmp_path)) == 2
        other = (await store.create()).id
        assert await vault.reveal(other, names) == []
    for file in tmp_path.iterdir():
        assert CARD.encode() not in file.read_bytes()


async def test_an_entry_that_was_moved_or_altered_is_refused(tmp_path: Path):
    async with opened(tmp_path) as store:
        vault, session = vault_of(store), (await store.create()).id
        other = (await store.create()).id
        [name] = await vault.keep(session, "turn", [PART])
        with closing(sqlite3.connect(tmp_path / "sessions.db")) as connection:
            connection.execute("UPDATE vault_entry SET session_id = ?", (other,))
            connection.commit()
        with pytest.raises(VaultKeyError, match="altered, or belongs to another place"):
            await vault.reveal(other, [name])


async def test_an_old_key_reads_and_a_missing_one_is_named(tmp_path: Path):
    async with opened(tmp_path) as store:
        session = (await store.create()).id
        [name] = await vault_of(store, KEY).keep(session, "turn", [PART])
        [entry] = await vault_of(store, OTHER, KEY).reveal(session, [name])
        assert entry.words == CARD
        with pytest.raises(VaultKeyError, match=VaultKeys([KEY]).ids[0]):
            await vault_of(store, OTHER).reveal(session, [name])


async def test_an_entry_is_unreadable_and_then_deleted_after_its_own_retention(tmp_path: Path):
    wall = Wall()
    async with opened(tmp_path, wall) as store:
        vault, session = vault_of(store, days=2), (await store.create()).id
        [name] = await vault.keep(session, "turn", [PART])
        wall.us += 2 * DAY_US - 1
        assert await vault.reveal(session, [name])
        assert await vault.expire() == 0
        wall.us += 1
        assert await vault.reveal(session, [name]) == []
        assert await vault.expire() == 1
        assert rows(tmp_path) == []


async def test_entries_are_deleted_with_their_session_and_need_one(tmp_path: Path):
    async with opened(tmp_path) as store:
        vault, session = vault_of(store), (await store.create()).id
        await vault.keep(session, "turn", [PART])
        await store.delete(session)
        assert rows(tmp_path) == []
        with pytest.raises(UnknownSessionError):
            await vault.keep(session, "turn", [PART])


async def test_turns_name_their_entries_whether_they_were_typed_or_redacted_before(tmp_path: Path):
    settings = PrivacySettings(redact=(PersonalData.PAYMENT_CARD,), vault=VaultSettings())
    redactor = Redactor(settings, find_language("en").personal)
    async with opened(tmp_path) as store:
        vault = vault_of(store)
        conversations = Conversations(store, compactor=Compactor(), redactor=redactor, vault=vault)
        async with conversations.open() as conversation:
            typed = await conversation.user_turn(f"it is {CARD}", transport="text")
            # As a call does it: the words were redacted on their way.
            conversation.note_hidden("my card is [card]", [PART])
            spoken = await conversation.user_turn("my card is [card]", transport="webrtc")
            plain = await conversation.user_turn("thank you", transport="text")
            with conversation.private():
                conversation.note_hidden("[card]", [PART])
                private = await conversation.user_turn(CARD, transport="text")
            session = conversation.session_id
        for turn in (typed, spoken):
            assert CARD not in str(turn.payload)
            [entry] = await vault.reveal(session, turn.payload["redacted"])
            assert entry.words == CARD
        assert "redacted" not in plain.payload and "redacted" not in private.payload
        events = await store.events(session, limit=100, kinds=[Kind.USER_TURN])
        assert CARD not in str([each.payload for each in events])
        await conversations.close()


async def test_a_vault_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VAULT_KEYS_ENV, raising=False)
    async with opened(tmp_path) as store:
        assert open_vault(store, None) is None
        with pytest.raises(ConfigError, match=f"privacy.vault: set {VAULT_KEYS_ENV}"):
            open_vault(store, VaultSettings())
        monkeypatch.setenv(VAULT_KEYS_ENV, "short")
        with pytest.raises(ConfigError, match=f"{VAULT_KEYS_ENV}: a key has 32 bytes"):
            open_vault(store, VaultSettings())
        monkeypatch.setenv(VAULT_KEYS_ENV, base64.b64encode(KEY).decode())
        assert open_vault(store, VaultSettings()) is not None


def test_a_vault_without_redaction_is_refused():
    with pytest.raises(ValueError, match="vault: nothing is redacted"):
        PrivacySettings(vault=VaultSettings())
