"""The film of a call with a camera, decoded again."""

import json
import uuid
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

from parley.core.errors import MediaError
from parley.recording.captions import Caption, captions_of
from parley.recording.folder import CallRecording, read_recording
from parley.recording.video import film_call
from tests.recorded_call import record_call

SESSION = str(uuid.UUID(int=9))
EVENTS: list[dict[str, Any]] = [
    {"at_ms": 1_100, "event": "VoiceStarted", "voiced_ms": 100},
    {"at_ms": 2_100, "event": "VoiceEnded", "silence_ms": 100},
    {"at_ms": 2_500, "event": "TurnEnded", "text": "a {card}"},
    {"at_ms": 3_000, "event": "ReplyStarted", "reply_id": "1"},
    {"at_ms": 3_800, "event": "ReplyFinished", "reply_id": "1", "text": "Yes.", "unheard": "No."},
    {"at_ms": 3_900, "event": "ReplyStarted", "reply_id": "2"},
    {"at_ms": 4_000, "event": "ReplyFinished", "reply_id": "2", "text": "", "unheard": "Never heard."},
]


def test_captions_are_where_the_voices_are():
    assert captions_of(EVENTS) == [
        Caption(1_000, 2_000, True, "a {card}"),
        Caption(3_000, 3_800, False, "Yes."),
    ]
    assert captions_of([{}, {"at_ms": "x"}, {"at_ms": 1, "event": "TurnEnded"}]) == []


async def with_camera(folder: Path, *colours: str, size: tuple[int, int] = (641, 480)) -> CallRecording:
    """Record 4 s with a picture at the beginning of every second but the first."""
    path = await record_call(folder, SESSION, seconds=4)
    (path / "user_frames").mkdir()
    for second, colour in enumerate(colours, 1):
        Image.new("RGB", size, colour).save(path / "user_frames" / f"{second * 1_000:09}.jpg")
    timeline = json.loads((path / "recording.json").read_text())
    (path / "recording.json").write_text(json.dumps({**timeline, "events": EVENTS}))
    return read_recording(path)


async def test_a_film_has_the_pictures_the_sound_and_the_captions_at_their_times(tmp_path: Path):
    recording = await with_camera(tmp_path, "red", "lime")
    path = film_call(recording)
    assert path == recording.path / "merged_replay.mp4"
    assert [each.name for each in recording.path.iterdir() if each.name.startswith(".")] == []
    with av.open(str(path)) as film:
        seen = {
            float(frame.time): frame.to_ndarray(format="rgb24")[100, 100] for frame in film.decode(video=0)
        }
    assert list(seen) == [0.0, 1.0, 2.0, 3.0]
    for time_s, colour in zip(seen, ((0, 0, 0), (255, 0, 0), (0, 255, 0), (0, 255, 0)), strict=True):
        assert abs(seen[time_s].astype(int) - colour).max() < 20, time_s
    with av.open(str(path)) as film:
        heard = sum(frame.samples for frame in film.decode(audio=0)) / film.streams.audio[0].rate
    assert 4.0 <= heard <= 4.2
    with av.open(str(path)) as film:
        titles = [
            (float(packet.pts * packet.time_base), title.dialogue.decode())
            for packet in film.demux(film.streams.subtitles[0])
            for title in packet.decode()
        ]
    assert titles == [(1.0, "Caller: a (card)"), (3.0, "Agent: Yes.")]


async def test_a_call_without_a_camera_has_no_film(tmp_path: Path):
    recording = read_recording(await record_call(tmp_path, SESSION))
    assert film_call(recording) is None


async def test_a_picture_that_is_none_is_one_error_and_leaves_nothing(tmp_path: Path):
    recording = await with_camera(tmp_path, "red")
    (recording.path / "user_frames" / "000002000.jpg").write_bytes(b"no picture")
    with pytest.raises(MediaError, match="cannot make"):
        film_call(recording)
    assert not [each for each in recording.path.iterdir() if "mp4" in each.name]


async def test_a_film_needs_the_stereo_file(tmp_path: Path):
    recording = await with_camera(tmp_path, "red")
    (recording.path / "merged_replay.wav").unlink()
    with pytest.raises(MediaError, match="has its sound"):
        film_call(recording)
