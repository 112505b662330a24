"""A session that is made long by repetition."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from parley.evals.viewer.long_session import DATABASE, SHOWN, _repeat_recording, _repeat_session
from parley.recording.folder import read_recording
from parley.recording.timeline import timeline_of
from parley.session_store.events import Draft, Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.recorded_call import record_call

LENGTH_US = 10_000_000


async def events_of(path: Path, session: str) -> list[Any]:
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{path}"))
    try:
        return await store.events(session, limit=1_000)
    finally:
        await store.close()


async def test_a_session_is_repeated_with_its_own_names_and_later_times(tmp_path: Path):
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/{DATABASE}"))
    session = (await store.create()).id
    writer = await store.claim(session)
    payloads: tuple[tuple[Kind, dict[str, object]], ...] = (
        (Kind.JOINED, {"transport": "webrtc", "call_id": "c"}),
        (Kind.USER_TURN, {"text": "hello", "transport": "webrtc", "words": [{"start_us": 5}]}),
        (Kind.BOT_TURN, {"text": "yes", "reply_id": "r"}),
        (Kind.LEFT, {"transport": "webrtc", "call_id": "c"}),
    )
    for place, (kind, payload) in enumerate(payloads):
        await writer.append(Draft(kind, payload, 1_000 * place, 1_000 * place, "system"))
    await store.close()
    (tmp_path / SHOWN).mkdir()
    assert await _repeat_session(tmp_path, session, 3, LENGTH_US) == 8
    found = await events_of(tmp_path / SHOWN / DATABASE, session)
    assert [each.kind for each in found] == [
        Kind.JOINED,
        *[Kind.USER_TURN, Kind.BOT_TURN] * 3,
        Kind.LEFT,
    ]
    assert [each.event_us for each in found[1:7:2]] == [1_000, 1_000 + LENGTH_US, 1_000 + 2 * LENGTH_US]
    assert [each.payload["reply_id"] for each in found[2:7:2]] == ["r", "r.1", "r.2"]
    assert found[5].payload["words"] == [{"start_us": 5 + 2 * LENGTH_US}]
    assert found[-1].event_us == 3_000 + 2 * LENGTH_US


async def test_a_recording_is_repeated_with_its_sound_and_peaks(tmp_path: Path):
    recording = read_recording(await record_call(tmp_path, str(uuid.uuid4()), seconds=2))
    length_ms = timeline_of(recording).duration_ms
    once = (recording.path / "merged_replay.wav").stat().st_size - 44
    assert _repeat_recording(recording, 5, length_ms) == 5
    assert timeline_of(recording).duration_ms == 5 * length_ms
    events = timeline_of(recording).events
    apart_ms = {after["at_ms"] - before["at_ms"] for before, after in zip(events, events[1:], strict=False)}
    assert apart_ms == {length_ms}
    assert (recording.path / "merged_replay.wav").stat().st_size - 44 == pytest.approx(5 * once, rel=0.02)
    peaks = json.loads((recording.path / "peaks.json").read_text())
    assert len(peaks["bot"]) == 5 * (length_ms // 100) and max(peaks["bot"]) > 20
