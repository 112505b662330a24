from pathlib import Path

from parley.batch.session_export import session_export
from parley.batch.settings import RecogniserChoice
from parley.batch.transcript import Transcription, TranscriptSegment
from parley.session_store.events import Kind
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionStore

BEGAN_US = 1_700_000_000_000_000


def segment(start_ms: int, speaker: str | None, text: str) -> TranscriptSegment:
    end_ms = start_ms + 1_000
    return TranscriptSegment(
        start_ms=start_ms, end_ms=end_ms, speaker=speaker, text=text, confidence=0.5, words=()
    )


def transcription(*segments: TranscriptSegment) -> Transcription:
    return Transcription(
        key="a key",
        source="a.wav",
        duration_ms=9_000,
        speech_ms=4_000,
        channels="split",
        recogniser=RecogniserChoice(name="moonshine_tiny"),
        segments=segments,
    )


async def test_a_store_imports_the_turns_of_a_transcript(tmp_path: Path):
    found = transcription(
        segment(0, "caller", "hello"),
        segment(1_200, "caller", "is anyone there?"),
        segment(3_000, "agent", "Good morning."),
        segment(5_000, None, "one"),
        segment(6_000, None, "two"),
    )
    lines = await session_export(found, BEGAN_US)
    # The same transcript is the same session.
    assert await session_export(found, BEGAN_US) == lines
    store = await SessionStore.open(StoreSettings(url=f"sqlite:///{tmp_path / 'sessions.db'}"))
    try:
        info = await store.import_(lines.decode().splitlines())
        events = await store.timeline(info.id, limit=10)
    finally:
        await store.close()
    assert [(event.kind, event.speaker, event.payload["text"]) for event in events] == [
        (Kind.USER_TURN, "caller", "hello is anyone there?"),
        (Kind.BOT_TURN, "agent", "Good morning."),
        (Kind.USER_TURN, None, "one"),
        (Kind.USER_TURN, None, "two"),
    ]
    assert events[0].event_us == BEGAN_US + 2_200_000


async def test_a_transcript_without_speech_is_a_session_without_turns(tmp_path: Path):
    store = await SessionStore.open(StoreSettings(url=f"sqlite:///{tmp_path / 'sessions.db'}"))
    try:
        lines = await session_export(transcription(), BEGAN_US)
        info = await store.import_(lines.decode().splitlines())
    finally:
        await store.close()
    assert (info.last_seq, info.created_us) == (0, BEGAN_US)
