"""A recorded call in the form of the MiniCPM-o server's files."""

import json
import uuid
from pathlib import Path
from typing import Any

from parley.recording.folder import CallRecording, read_recording
from parley.recording.minicpm_view import call_meta, call_recording
from tests.recorded_call import record_call

SESSION = str(uuid.UUID(int=31))


async def recorded(folder: Path, transport: str, events: list[dict[str, Any]]) -> CallRecording:
    """Return a call of 6 s, which has two segments of each side, with these events."""
    path = await record_call(folder, SESSION, seconds=6, merged=False, transport=transport)
    timeline = json.loads((path / "recording.json").read_text())
    (path / "recording.json").write_text(json.dumps({**timeline, "events": events}))
    return read_recording(path)


def reply(reply_id: str, began_ms: int, ended_ms: int, text: str) -> list[dict[str, Any]]:
    return [
        {"at_ms": began_ms, "event": "ReplyStarted", "reply_id": reply_id},
        {"at_ms": ended_ms, "event": "ReplyFinished", "reply_id": reply_id, "text": text},
    ]


async def test_the_words_of_a_reply_are_in_the_chunk_of_its_first_sound(tmp_path: Path):
    events = [*reply("a", 100, 900, "Hello."), *reply("b", 4_900, 5_800, "At ten.")]
    recording = await recorded(tmp_path, "duplex_ws", events)
    (recording.path / "user_frames").mkdir()
    for at_ms in (1_000, 2_000, 5_500):
        (recording.path / "user_frames" / f"{at_ms:09}.jpg").write_bytes(b"jpg")
    first, second = call_recording(recording)["chunks"]
    assert (first["receive_ts_ms"], second["receive_ts_ms"]) == (0, 5_000)
    assert first["result"]["text"] == "Hello. At ten." and "text" not in second["result"]
    assert [each["result"].get("end_of_turn") for each in (first, second)] == [True, True]
    assert first["user_frame"] == "user_frames/000001000.jpg"
    assert second["user_frame"] == "user_frames/000005500.jpg"
    assert call_meta(recording)["app_type"] == "omni_duplex"


async def test_a_stretch_without_sound_is_a_chunk_that_listens(tmp_path: Path):
    recording = await recorded(tmp_path, "duplex_ws", [])
    (recording.path / "ai_audio" / "000000.flac").unlink()
    (recording.path / "user_audio" / "000001.flac").unlink()
    first, second = call_recording(recording)["chunks"]
    assert (first["result"]["mode"], "ai_audio" in first["result"]) == ("LISTEN", False)
    assert (second["result"]["mode"], "user_audio" in second) == ("SPEAK", False)


async def test_a_file_of_a_foreign_number_makes_no_endless_timeline(tmp_path: Path):
    recording = await recorded(tmp_path, "duplex_ws", [])
    (recording.path / "user_audio" / "999999999.flac").write_bytes(b"foreign")
    assert len(call_recording(recording)["chunks"]) == 86_400 // 5 + 1


async def test_turns_have_their_answers_pictures_and_times(tmp_path: Path):
    events = [
        *reply("greeting", 0, 400, "Welcome."),
        {"at_ms": 1_000, "event": "TurnEnded", "text": "look at this"},
        {"at_ms": 1_400, "event": "AnswerHeard", "latency_ms": 420},
        *reply("a", 1_400, 2_000, "A card."),
        *reply("b", 2_100, 2_500, "A red one."),
        {"at_ms": 4_000, "event": "TurnEnded", "text": "thank you"},
        {"at_ms": 4_100, "event": "TurnEnded", "text": ""},
    ]
    recording = await recorded(tmp_path, "half_duplex", events)
    (recording.path / "user_images").mkdir()
    (recording.path / "user_images" / "000001005-0.jpg").write_bytes(b"jpg")
    greeting, look, thanks = call_recording(recording)["turns"]
    assert (greeting["input"]["text"], greeting["output"]["text"]) == ("", "Welcome.")
    assert look["input"] == {"text": "look at this", "images": ["user_images/000001005-0.jpg"]}
    assert (look["output"]["text"], look["timing"]) == ("A card. A red one.", {"elapsed_ms": 420})
    assert (thanks["turn_index"], thanks["request_ts_ms"], thanks["output"]["text"]) == (2, 4_000, "")


async def test_a_call_that_was_killed_has_no_end(tmp_path: Path):
    recording = await recorded(tmp_path, "half_duplex", [])
    (recording.path / "recording.json").unlink()
    meta = call_meta(recording)
    assert (meta["ended_at"], meta["duration_s"]) == (None, None)
    assert call_recording(recording)["turns"] == []
