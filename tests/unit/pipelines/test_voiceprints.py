"""Voiceprints in a session: when they are written, and what a later call reads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.core.call_events import VoicesLearnt
from parley.core.timeline import KnownVoice
from parley.pipelines.voiceprints import VoiceprintRecords, recall_voices
from parley.runtime.event_stream import CallEvents
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.session_files import new_session_file

ADA, BEN = KnownVoice("speaker 1", (0.6, 0.8), 2.0), KnownVoice("speaker 2", (0.8, -0.6), 1.5)


@asynccontextmanager
async def session(
    folder: Path, session_id: str | None = None
) -> AsyncIterator[tuple[SessionStore, Conversation]]:
    url = new_session_file(folder / "sessions.db")
    store = await SessionStore.open(StoreTuning(url=url, busy_timeout_ms=0))
    opened = Conversations(store, ConversationTuning(), compactor=Compactor())
    try:
        async with opened.open(session_id) as conversation:
            yield store, conversation
    finally:
        await opened.close()
        await store.close()


async def written(store: SessionStore, conversation: Conversation) -> list[Event]:
    await conversation.flushed()
    return await store.events(conversation.session_id, limit=100)


def learn(events: CallEvents, *voices: KnownVoice) -> None:
    events.publish(VoicesLearnt(events.now_ms(), voices))


async def test_voices_are_written_when_they_are_new_or_heard_twice_as_long(tmp_path: Path):
    events = CallEvents()
    async with session(tmp_path) as (store, conversation):
        VoiceprintRecords(conversation, events, "call")
        learn(events, ADA)
        for seconds in (2.5, 3.9):
            learn(events, KnownVoice("speaker 1", (0.6, 0.8), seconds))
        assert len(await written(store, conversation)) == 2
        learn(events, KnownVoice("speaker 1", (0.6, 0.8), 3.9), BEN)
        learn(events, KnownVoice("speaker 1", (0.6, 0.8), 7.9), BEN)
        found = await written(store, conversation)
        assert [event.kind for event in found] == [Kind.CONSENT, Kind.VOICES, Kind.VOICES, Kind.VOICES]
        assert found[0].payload["to"] == "voiceprints" and found[0].payload["call_id"] == "call"
        session_id = conversation.session_id
    async with session(tmp_path, session_id) as (_store, conversation):
        assert await recall_voices(conversation) == (KnownVoice("speaker 1", (0.6, 0.8), 7.9), BEN)


def on_disk(folder: Path) -> bool:
    """Return whether a file of the store holds Ada's embedding."""
    return any(b"0.6,0.8" in file.read_bytes().replace(b" ", b"") for file in folder.glob("sessions.db*"))


async def test_voices_are_deleted_with_their_session(tmp_path: Path):
    async with session(tmp_path) as (store, conversation):
        events = CallEvents()
        VoiceprintRecords(conversation, events, "call")
        learn(events, ADA)
        await conversation.flushed()
        assert on_disk(tmp_path)
        await store.delete(conversation.session_id)
    assert not on_disk(tmp_path)


@pytest.mark.parametrize(
    "voices",
    [
        None,
        "voices",
        [7],
        [{"speaker": "speaker 1", "embedding": [0.6, None], "seconds": 2.0}],
        [{"speaker": "speaker 1", "embedding": "0.6", "seconds": 2.0}],
        [{"speaker": "speaker 1", "embedding": [0.6, 0.8], "seconds": 0}],
        [{"speaker": None, "embedding": [0.6, 0.8], "seconds": 2.0}],
        [{"speaker": "speaker 1", "embedding": [0.1] * 2_000, "seconds": 2.0}],
    ],
)
async def test_what_another_program_wrote_is_no_voice(tmp_path: Path, voices: Any):
    async with session(tmp_path) as (_store, conversation):
        assert await recall_voices(conversation) == ()
        conversation.record(conversation.draft(Kind.VOICES, "diar", voices=voices))
        await conversation.flushed()
        assert await recall_voices(conversation) == ()
