"""Signed evidence of sessions, over a real store."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from parley.core.errors import ConfigError
from parley.core.provenance import Provenance, digest_of
from parley.language import find_language
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import CAUGHT_UP, Conversations
from parley.session_store.events import Draft, Kind
from parley.session_store.evidence import EVIDENCE_KEY_ENV, EvidenceSigner, EvidenceSource, Verified
from parley.session_store.evidence_check import main, verify_session
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore

SIGNER = EvidenceSigner(bytes(range(32)))
MADE_BY = Provenance("0.2.0", digest_of("{}"))
SOURCE = EvidenceSource(SIGNER, MADE_BY)


@asynccontextmanager
async def opened(
    folder: Path, evidence: EvidenceSource | None = SOURCE, settings: ConversationTuning | None = None
) -> AsyncIterator[Conversations]:
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    settings = settings or ConversationTuning()
    compactor = Compactor(
        settings.compaction, budget_tokens=settings.budget_tokens, facts=find_language("en").facts
    )
    conversations = Conversations(store, settings, compactor=compactor, evidence=evidence)
    try:
        yield conversations
    finally:
        await conversations.close()
        await store.close()


def reply(conversation: Conversation, text: str) -> Draft:
    made_by = MADE_BY.of_reply({"llm": "documents", "tts": "hibari"}, "Be brief.")
    payload = {"reply_id": text, "text": text, "truncated": False, "unheard": "", "made_by": made_by}
    return conversation.draft(Kind.BOT_TURN, "bot", payload)


async def talk(conversations: Conversations, session_id: str | None = None, *, turns: int = 2) -> str:
    """Hold a session in which the caller hears a disclosure, consents and is answered; return its id."""
    async with conversations.open(session_id) as conversation:
        draft = conversation.draft
        conversation.record(draft(Kind.DISCLOSED, "system", call_id="c", text="You are talking to an AI."))
        conversation.record(draft(Kind.CONSENT, "system", to="voiceprints", by="deployment", call_id="c"))
        for number in range(turns):
            await conversation.user_turn(f"Question {number}?", transport="webrtc")
            await conversation.append(reply(conversation, f"Answer {number}."))
        return conversation.session_id


async def verified(conversations: Conversations, session_id: str, trusted: str | None = None) -> Verified:
    return await verify_session(conversations.store, session_id, trusted=trusted)


async def test_what_a_caller_was_told_and_who_answered_is_signed(tmp_path: Path):
    async with opened(tmp_path) as conversations:
        session = await talk(conversations)
        entries = await conversations.store.events(session, limit=100, kinds=[Kind.EVIDENCE])
        assert [each.payload["kind"] for each in entries] == ["disclosed", "consent", "bot_turn", "bot_turn"]
        assert await verified(conversations, session, SIGNER.public_key) == Verified(
            4, (SIGNER.public_key,), ()
        )
        # A second call goes on with the same chain.
        await talk(conversations, session)
        assert await verified(conversations, session) == Verified(8, (SIGNER.public_key,), ())
        exported = [line async for line in conversations.store.export(session)]
        await conversations.delete(session)
        assert sum('"kind":"evidence"' in line for line in exported) == 8


NO_LONGER_FIRST = ["entry 1: its signature does not hold", "entry 2: the entry before it is another one"]


def change_reply(payload: dict[str, Any]) -> None:
    payload["text"] = "Another answer."


def change_maker(payload: dict[str, Any]) -> None:
    payload["made_by"]["engines"]["llm"] = "another"


@pytest.mark.parametrize(
    ("kind", "change", "problems"),
    [
        ("bot_turn", change_reply, ["entry 3: its event 6 (bot_turn) was changed"]),
        ("bot_turn", change_maker, ["entry 3: its event 6 (bot_turn) was changed"]),
        (
            "evidence",
            lambda payload: payload.update(digest="0" * 64),
            ["entry 1: its event 1 (disclosed) was changed", *NO_LONGER_FIRST],
        ),
        (
            "evidence",
            lambda payload: payload.update(number=7),
            ["entry 1: its number is 7", *NO_LONGER_FIRST],
        ),
        ("evidence", lambda payload: payload.update(signer="12"), NO_LONGER_FIRST),
    ],
)
async def test_a_change_in_the_database_is_found(
    tmp_path: Path, kind: str, change: Callable[[dict[str, Any]], None], problems: list[str]
):
    async with opened(tmp_path) as conversations:
        session = await talk(conversations)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as database, database:
        [seq, text] = database.execute(
            "SELECT seq, payload FROM event WHERE kind = ? ORDER BY seq LIMIT 1", (kind,)
        ).fetchone()
        payload = json.loads(text)
        change(payload)
        database.execute("UPDATE event SET payload = ? WHERE seq = ?", (json.dumps(payload), seq))
    async with opened(tmp_path) as conversations:
        found = await verified(conversations, session)
        assert list(found.problems) == problems


@pytest.mark.parametrize("kind", ["evidence", "consent", "bot_turn"])
async def test_a_removed_event_is_found(tmp_path: Path, kind: str):
    async with opened(tmp_path) as conversations:
        session = await talk(conversations)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as database, database:
        database.execute("DELETE FROM event WHERE seq = (SELECT min(seq) FROM event WHERE kind = ?)", (kind,))
    async with opened(tmp_path) as conversations:
        problems = (await verified(conversations, session)).problems
        assert any("missing" in each or "another one" in each for each in problems)


async def test_the_next_process_signs_what_one_that_died_has_not(tmp_path: Path):
    async with opened(tmp_path, None) as unsigned:
        session = await talk(unsigned, turns=CAUGHT_UP)
        assert await verified(unsigned, session) == Verified(0, (), ())
    async with opened(tmp_path) as conversations:
        await talk(conversations, session)
        assert await verified(conversations, session) == Verified(CAUGHT_UP + 6, (SIGNER.public_key,), ())


async def test_an_outage_that_fills_the_queue_leaves_no_gap(tmp_path: Path):
    async with opened(tmp_path, settings=ConversationTuning(max_pending=10)) as conversations:
        async with conversations.open() as conversation:
            session = conversation.session_id
            with closing(sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                conversation.record(*[reply(conversation, f"Answer {number}.") for number in range(10)])
                other.execute("ROLLBACK")
            await conversation.flushed()
            await conversation.append(reply(conversation, "The last answer."))
        assert await verified(conversations, session) == Verified(11, (SIGNER.public_key,), ())


async def test_a_changed_key_goes_on_with_the_chain_and_is_named(tmp_path: Path):
    other = EvidenceSigner(bytes(32))
    async with opened(tmp_path) as conversations:
        session = await talk(conversations)
    async with opened(tmp_path, EvidenceSource(other, MADE_BY)) as conversations:
        await talk(conversations, session)
        found = await verified(conversations, session)
        assert found == Verified(8, (SIGNER.public_key, other.public_key), ())
        distrusted = await verified(conversations, session, other.public_key)
        assert distrusted.problems == tuple(
            f"entry {number}: signed by another key" for number in range(1, 5)
        )


async def test_an_entry_of_another_session_does_not_verify(tmp_path: Path):
    async with opened(tmp_path) as conversations:
        first, second = await talk(conversations), await talk(conversations)
    with closing(sqlite3.connect(tmp_path / "sessions.db")) as database, database:
        database.execute("DELETE FROM event WHERE session_id = ?", (second,))
        database.execute("UPDATE event SET session_id = ? WHERE session_id = ?", (second, first))
    async with opened(tmp_path) as conversations:
        problems = (await verified(conversations, second)).problems
        assert sum("signature does not hold" in each for each in problems) == 4


async def test_the_command_verifies_a_stored_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    url = f"sqlite:///{tmp_path}/sessions.db"
    async with opened(tmp_path) as conversations:
        session = await talk(conversations)
    assert await asyncio.to_thread(main, [session, "--url", url, "--signer", SIGNER.public_key]) == 0
    assert capsys.readouterr().out == f"4 entries, signed by {SIGNER.public_key}\n"
    assert await asyncio.to_thread(main, [session, "--url", url, "--signer", "00"]) == 1
    assert "entry 1: signed by another key" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["00000000-0000-4000-8000-000000000000", "--url", url]) == 2


def test_a_key_that_is_missing_or_wrong_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(EVIDENCE_KEY_ENV, raising=False)
    with pytest.raises(ConfigError, match=f"set {EVIDENCE_KEY_ENV}"):
        EvidenceSigner.from_environment()
    monkeypatch.setenv(EVIDENCE_KEY_ENV, "short")
    with pytest.raises(ConfigError, match="32 bytes in base64"):
        EvidenceSigner.from_environment()
