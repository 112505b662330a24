"""The recorder of a call, on real time and a real disk."""

import asyncio
import base64
import json
import threading
import uuid
import wave
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from parley.core.call_events import (
    PicturesTaken,
    PrivatePauseBegan,
    PrivatePauseEnded,
    RecordingDegraded,
    RecordingEnded,
    RecordingStarted,
    SpeechHeld,
    SpeechSettled,
    TurnEndDecided,
    TurnEnded,
    TurnStarted,
    UtteranceRead,
    VoiceEnded,
    VoiceStarted,
)
from parley.core.errors import MediaError
from parley.core.pictures import Picture, picture_key
from parley.recording.disk import RecordingDisk
from parley.recording.folder import BOT_AUDIO, CALLER_AUDIO, read_recording
from parley.recording.held_segments import RecordedRedaction
from parley.recording.merge import main, merge_call
from parley.recording.recorder import MOST_WAITING, CallRecorder, RecordingSource
from parley.recording.retention import RemovedSessions
from parley.recording.settings import RecordingTuning
from parley.recording.timeline import timeline_of
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

RATE_HZ = 16_000


class OneCall:
    """A call that is recorded, with the events of its recording."""

    def __init__(
        self,
        folder: Path,
        *,
        merges: bool = False,
        is_live: bool = False,
        began_s_ago: float = 0.0,
        redaction: RecordedRedaction | None = None,
        **settings: object,
    ) -> None:
        self.events = CallEvents()
        self.disk, self.merging = RecordingDisk(), RecordingDisk("merging")
        self.removed = RemovedSessions(folder)
        self.seen: list[object] = []
        for kind in (RecordingStarted, RecordingDegraded, RecordingEnded):
            self.events.subscribe(kind, self.seen.append)
        self.began_us = LoopClock().now_us() - round(began_s_ago * 1_000_000)
        self.recorder = CallRecorder(
            RecordingTuning.model_validate({"folder": folder, "min_free_gb": 0, **settings}),
            RecordingSource(
                str(uuid.uuid4()),
                uuid.uuid4().hex,
                "webrtc",
                "embedded",
                is_live,
                self.began_us,
                5_000_000,
                redaction=redaction,
            ),
            self.events,
            disk=self.disk,
            merging=self.merging if merges else None,
            removed=self.removed,
        )
        self.path = self.recorder.path

    def play(self, seconds: float, *, at_s: float = 0.0, rate_hz: int = RATE_HZ) -> np.ndarray:
        """Play a tone in one piece."""
        samples = (8_000 * np.sin(np.arange(round(seconds * rate_hz)) / 5)).astype("<i2")
        self.recorder.play(samples.tobytes(), rate_hz, self.began_us + round(at_s * 1_000_000))
        return samples

    def kinds(self) -> list[type]:
        return [type(each) for each in self.seen]

    async def close(self) -> None:
        await self.recorder.close()
        await asyncio.to_thread(self.disk.close, 5)
        await asyncio.to_thread(self.merging.close, 5)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.01)


async def test_both_sides_are_in_segments_and_in_one_stereo_file(tmp_path: Path):
    call = OneCall(tmp_path, merges=True)
    call.recorder.start()
    bot = call.play(7.0, at_s=1.0, rate_hz=24_000)
    call.recorder.hear(np.full(RATE_HZ, 500, "<i2").tobytes(), RATE_HZ)
    call.events.publish(TurnEnded(call.events.now_ms(), "hello"))
    await call.close()
    assert call.kinds() == [RecordingStarted, RecordingEnded]
    recording = read_recording(call.path)
    assert sorted(recording.segments(BOT_AUDIO)) == [0, 1]
    first, rate_hz = soundfile.read(recording.segments(BOT_AUDIO)[0], dtype="int16")
    assert rate_hz == 24_000
    assert np.array_equal(first[24_000:], bot[: 4 * 24_000]) and not first[:24_000].any()
    timeline = recording.timeline()
    assert timeline["is_over"] and timeline["duration_ms"] == 8_000
    assert timeline["events"][-1]["text"] == "hello"
    stereo, rate_hz = soundfile.read(call.path / "merged_replay.wav", dtype="int16")
    assert rate_hz == 24_000 and stereo.shape == (8 * 24_000, 2)
    assert np.array_equal(stereo[24_000:, 1], bot)
    # The caller has half the rate of the file and is raised to it.
    assert np.abs(stereo[2_000:20_000, 0] - 500).max() <= 5


async def test_a_kill_loses_the_words_that_are_not_decided_where_they_are_redacted(tmp_path: Path):
    hides = RecordedRedaction(("card_number",), "silence")
    call = OneCall(tmp_path, began_s_ago=20.0, redaction=hides)
    call.recorder.start()
    began_ms = call.began_us // 1_000
    # The caller speaks from the seventh second on, and has not come to an end.
    call.events.publish(SpeechHeld(began_ms + 20_000, began_ms + 6_000))
    for seconds in (20, 1):
        call.recorder.hear(np.full(seconds * RATE_HZ, 500, "<i2").tobytes(), RATE_HZ)
    call.play(20.0)
    await until((call.path / "meta.json").exists)
    await until(lambda: 3 in read_recording(call.path).segments(BOT_AUDIO))
    # All that a kill would leave: the undecided words were never on the disk.
    assert sorted(read_recording(call.path).segments(CALLER_AUDIO)) == [0]
    call.events.publish(
        SpeechSettled(began_ms + 22_000, began_ms + 20_000, ((began_ms + 8_000, began_ms + 9_000),))
    )
    call.recorder.hear(np.full(RATE_HZ, 500, "<i2").tobytes(), RATE_HZ)
    await until(lambda: 2 in read_recording(call.path).segments(CALLER_AUDIO))
    second, _ = soundfile.read(read_recording(call.path).segments(CALLER_AUDIO)[1], dtype="int16")
    assert not second[3 * RATE_HZ : 4 * RATE_HZ].any() and second[: 3 * RATE_HZ].all()
    await call.close()


async def test_a_segment_that_cannot_be_written_is_an_event_and_the_next_one_is(tmp_path: Path):
    call = OneCall(tmp_path)
    call.recorder.start()
    # A file in place of the folder: every write below it fails.
    obstacle = call.path / BOT_AUDIO
    await until(call.path.is_dir)
    obstacle.touch()
    call.play(5.0)
    await until(lambda: RecordingDegraded in call.kinds())
    obstacle.unlink()
    call.play(5.0, at_s=5.0)
    await call.close()
    degraded = next(each for each in call.seen if isinstance(each, RecordingDegraded))
    assert degraded.reason == "the disk: File exists" and degraded.lost_ms == 5_000
    ended = call.seen[-1]
    assert isinstance(ended, RecordingEnded) and (ended.duration_ms, ended.lost_ms) == (10_000, 5_000)
    timeline = json.loads((call.path / "recording.json").read_bytes())
    assert timeline[BOT_AUDIO]["lost"] == [{"start_ms": 0, "length_ms": 5_000}]
    assert sorted(read_recording(call.path).segments(BOT_AUDIO)) == [1]


async def test_a_disk_that_never_returns_holds_neither_the_call_nor_its_end(tmp_path: Path):
    call = OneCall(tmp_path)
    stuck = threading.Event()
    call.disk.put(stuck.wait)
    call.recorder.start()
    for n in range(MOST_WAITING + 3):
        call.play(5.0, at_s=5.0 * n)
    async with asyncio.timeout(30):
        await call.recorder.close()
    ended = call.seen[-1]
    assert isinstance(ended, RecordingEnded) and ended.lost_ms == 4 * 5_000
    assert call.kinds().count(RecordingDegraded) == 1
    stuck.set()
    await asyncio.to_thread(call.disk.close, 5)
    # What waited is on the disk in the end.
    assert len(read_recording(call.path).segments(BOT_AUDIO)) == MOST_WAITING - 1


async def test_nothing_is_written_below_the_floor_of_free_space(tmp_path: Path):
    call = OneCall(tmp_path, min_free_gb=1_000_000_000)
    call.recorder.start()
    call.play(5.0)
    await call.close()
    degraded = next(each for each in call.seen if isinstance(each, RecordingDegraded))
    assert "recording.min_free_gb" in degraded.reason
    assert not list(tmp_path.rglob("*.flac"))
    # What was lost is on the disk.
    timeline = read_recording(call.path).timeline()
    assert timeline["is_over"] and timeline[BOT_AUDIO]["lost"] == [{"start_ms": 0, "length_ms": 5_000}]


async def test_the_last_timeline_has_a_place_where_the_disk_takes_no_segment(tmp_path: Path):
    call = OneCall(tmp_path)
    call.recorder.start()
    await until((call.path / "meta.json").exists)
    stuck = threading.Event()
    call.disk.put(stuck.wait)
    await until(lambda: call.disk.waiting == 0)
    while call.disk.put(stuck.is_set):
        pass
    call.play(5.0)
    await call.recorder.close()
    stuck.set()
    await asyncio.to_thread(call.disk.close, 5)
    timeline = read_recording(call.path).timeline()
    assert timeline["is_over"] and timeline[BOT_AUDIO]["lost"] == [{"start_ms": 0, "length_ms": 5_000}]


async def test_pictures_are_kept_at_their_interval(tmp_path: Path):
    call = OneCall(tmp_path, frame_ms=100)
    call.recorder.start()
    pixels = np.random.default_rng(1).integers(0, 255, (48, 64, 3), np.uint8).tobytes()
    async with asyncio.timeout(5):
        for _ in range(50):
            call.recorder.see(pixels, (64, 48))
            await asyncio.sleep(0.01)
    await call.close()
    frames = sorted((call.path / "user_frames").iterdir())
    at_ms = [int(each.stem) for each in frames]
    assert len(at_ms) >= 3
    assert min(after - before for before, after in pairwise(at_ms)) >= 99
    assert all(each.read_bytes().startswith(b"\xff\xd8") for each in frames)
    assert len(json.loads((call.path / "recording.json").read_bytes())["user_frames"]) == len(frames)


def picture_of(content: bytes, media_type: str = "image/jpeg") -> Picture:
    return Picture(picture_key(content), media_type, 4, 3, base64.b64encode(content).decode())


async def test_pictures_of_turns_are_kept_as_the_model_gets_them(tmp_path: Path):
    call = OneCall(tmp_path)
    publish, began_ms = call.events.publish, call.began_us // 1_000
    publish(PicturesTaken(began_ms, (picture_of(b"before the recording"),)))
    publish(TurnStarted(began_ms))
    call.recorder.start()
    publish(PicturesTaken(began_ms + 500, (picture_of(b"of a turn that began before"),)))
    publish(TurnEnded(began_ms + 500, "look at this"))
    publish(PicturesTaken(began_ms + 1_500, (picture_of(b"first"), picture_of(b"second", "image/png"))))
    publish(PrivatePauseBegan(began_ms + 2_000, by="operator"))
    publish(PicturesTaken(began_ms + 2_500, (picture_of(b"of a private pause"),)))
    publish(PrivatePauseEnded(began_ms + 3_000, by="operator"))
    call.play(5.0)
    await call.close()
    recording = read_recording(call.path)
    assert [(each.name, each.read_bytes()) for each in recording.images()] == [
        ("000001500-0.jpg", b"first"),
        ("000001500-1.png", b"second"),
    ]
    timeline = recording.timeline()
    assert timeline["user_images"] == ["000001500-0.jpg", "000001500-1.png"]
    assert timeline["lost_pictures"] == 0


async def test_a_private_pause_is_on_the_disk_at_once(tmp_path: Path):
    call, is_written = OneCall(tmp_path), threading.Event()
    call.recorder.start()
    call.play(1.0)
    call.events.publish(PrivatePauseBegan(call.began_us // 1_000 + 500, by="operator"))
    # After everything that waits for the disk.
    call.disk.put(is_written.set)
    assert await asyncio.to_thread(is_written.wait, 10)
    events = read_recording(call.path).timeline()["events"]
    assert [each["event"] for each in events] == ["PrivatePauseBegan"]
    await call.close()


async def test_a_private_pause_before_the_recording_is_on_the_disk_when_it_begins(tmp_path: Path):
    call, is_written = OneCall(tmp_path), threading.Event()
    call.events.publish(PrivatePauseBegan(call.began_us // 1_000, by="operator"))
    call.events.publish(PrivatePauseEnded(call.began_us // 1_000 + 100, by="operator"))
    call.recorder.start()
    call.disk.put(is_written.set)
    assert await asyncio.to_thread(is_written.wait, 10)
    timeline = timeline_of(read_recording(call.path))
    assert timeline.had_pause and not timeline.events
    await call.close()
    assert timeline_of(read_recording(call.path)).had_pause


async def test_a_disk_that_is_too_slow_for_pictures_loses_them_and_no_voice(tmp_path: Path):
    call, is_free = OneCall(tmp_path), threading.Event()
    call.disk.put(is_free.wait)
    call.recorder.start()
    for number in range(6):
        call.events.publish(PicturesTaken(call.began_us // 1_000 + number, (picture_of(bytes([number])),)))
    call.play(5.0)
    is_free.set()
    await call.close()
    timeline = read_recording(call.path).timeline()
    assert (len(timeline["user_images"]), timeline["lost_pictures"]) == (4, 2)
    assert timeline[BOT_AUDIO]["lost"] == []


async def test_a_call_that_was_killed_is_merged_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    call = OneCall(tmp_path)
    call.recorder.start()
    call.play(12.0)
    await asyncio.to_thread(call.disk.close, 5)
    assert not (call.path / "recording.json").exists()
    # Half of a file that was being written, as a crash of the machine may leave it.
    (call.path / BOT_AUDIO / ".000002.flac.abc").write_bytes(b"fLaC")
    broken = call.path / BOT_AUDIO / "000001.flac"
    broken.write_bytes(broken.read_bytes()[:100])
    assert main([str(call.path)]) == 0
    assert "000001.flac cannot be read" in capsys.readouterr().err
    with wave.open(str(call.path / "merged_replay.wav")) as file:
        assert file.getnframes() == 10 * RATE_HZ


@pytest.mark.parametrize("session", ["../../etc", "x", "", "a" * 36, str(uuid.UUID(int=5)) + "/.."])
async def test_a_session_that_is_no_id_is_not_recorded(tmp_path: Path, session: str):
    with pytest.raises(MediaError, match="not the id of a session"):
        CallRecorder(
            RecordingTuning(folder=tmp_path),
            RecordingSource(session, uuid.uuid4().hex, "webrtc", "embedded", True, 0, 0),
            CallEvents(),
            disk=RecordingDisk(),
            merging=None,
        )


async def test_foreign_and_half_written_folders_are_refused_with_a_reason(tmp_path: Path):
    call = OneCall(tmp_path)
    call.recorder.start()
    call.play(5.0)
    await call.close()
    meta = call.path / "meta.json"
    good = json.loads(meta.read_bytes())
    for text, reason in (
        (b"{", "cannot be read"),
        (b"[]", "not a JSON object"),
        (json.dumps({**good, "session_id": str(uuid.uuid4())}).encode(), "belongs to another call"),
        (json.dumps({**good, "segment_ms": 0}).encode(), "another version"),
    ):
        meta.write_bytes(text)
        with pytest.raises(MediaError, match=reason):
            read_recording(call.path)
    meta.unlink()
    with pytest.raises(MediaError, match="there is no such file"):
        read_recording(call.path)
    meta.write_text(json.dumps(good))
    link = call.path.with_name(uuid.uuid4().hex)
    link.symlink_to(call.path)
    with pytest.raises(MediaError, match="not the folder of a recorded call"):
        read_recording(link)
    secret = tmp_path / "secret.flac"
    soundfile.write(secret, np.ones(100, "<i2"), RATE_HZ, format="FLAC")
    (call.path / CALLER_AUDIO).mkdir()
    (call.path / CALLER_AUDIO / "000000.flac").symlink_to(secret)
    assert read_recording(call.path).segments(CALLER_AUDIO) == {}
    with pytest.raises(MediaError, match="no audio was recorded"):
        (call.path / BOT_AUDIO / "000000.flac").unlink()
        merge_call(read_recording(call.path))


async def test_a_call_whose_session_was_deleted_writes_nothing_any_more(tmp_path: Path):
    call = OneCall(tmp_path, merges=True)
    call.recorder.start()
    call.play(5.0)
    await until(lambda: (call.path / BOT_AUDIO / "000000.flac").exists())
    assert call.removed.remove(call.path.parent.name).calls == 1
    call.play(5.0, at_s=5.0)
    await call.close()
    assert list((tmp_path / "sessions").iterdir()) == []


async def test_a_disk_that_refuses_when_a_call_begins_does_not_make_the_call_unreadable(tmp_path: Path):
    obstacle = tmp_path / "sessions"
    obstacle.touch()
    call = OneCall(tmp_path)
    call.recorder.start()
    await until(lambda: RecordingDegraded in call.kinds())
    obstacle.unlink()
    call.play(5.0)
    await until(lambda: (call.path / BOT_AUDIO / "000000.flac").exists())
    # Now, and not only at the end: a call that is killed can be read.
    began_at = read_recording(call.path).meta["began_at"]
    await call.close()
    recording = read_recording(call.path)
    assert recording.meta["began_at"] == began_at and recording.timeline()["is_over"]


async def test_a_backlog_that_came_too_late_is_a_loss_of_the_recording(tmp_path: Path):
    call = OneCall(tmp_path, is_live=True, began_s_ago=4.5)
    call.recorder.start()
    running = asyncio.create_task(call.recorder.run(), name="recorder")
    packet = np.full(RATE_HZ // 50, 500, "<i2").tobytes()
    call.recorder.hear(packet, RATE_HZ)
    # Nothing more comes until time has closed the segment; then what was said meanwhile comes at once.
    await until((call.path / CALLER_AUDIO / "000000.flac").exists)
    for _ in range(200):
        call.recorder.hear(packet, RATE_HZ)
    running.cancel()
    await call.close()
    (lost,) = read_recording(call.path).timeline()[CALLER_AUDIO]["lost"]
    assert 450 <= lost["length_ms"] <= 500
    assert lost["start_ms"] + lost["length_ms"] == pytest.approx(5_000, abs=2)
    assert call.kinds() == [RecordingStarted, RecordingDegraded, RecordingEnded]
    degraded = call.seen[1]
    assert isinstance(degraded, RecordingDegraded) and "user_audio is dropped" in degraded.reason


@pytest.mark.parametrize("is_late_turn", [False, True])
async def test_words_from_before_the_recording_are_not_in_its_timeline(tmp_path: Path, is_late_turn: bool):
    call = OneCall(tmp_path)
    publish = call.events.publish
    publish(VoiceStarted(0, 100))
    if not is_late_turn:
        publish(TurnStarted(0))
    call.recorder.start()
    publish(VoiceEnded(500, 100))
    # A pause of the same turn.
    publish(VoiceStarted(900, 100))
    publish(VoiceEnded(1_200, 100))
    if is_late_turn:
        publish(TurnStarted(1_300))
    publish(TurnEndDecided(1_300, 100, None))
    publish(TurnEnded(1_300, "my card number is 4 1 1 1, and hello"))
    publish(VoiceStarted(2_000, 100))
    publish(TurnStarted(2_000))
    publish(VoiceEnded(2_500, 100))
    publish(TurnEnded(2_600, "hello again"))
    await call.close()
    events = read_recording(call.path).timeline()["events"]
    assert [each["event"] for each in events] == [
        *("VoiceStarted", "VoiceEnded"),
        *("VoiceStarted", "TurnStarted", "VoiceEnded", "TurnEnded"),
    ]
    assert events[-1]["text"] == "hello again"


def read(at_ms: int, since_ms: int, text: str, audio_ms: int | None = None) -> UtteranceRead:
    return UtteranceRead(
        at_ms,
        recogniser="one",
        since_ms=since_ms,
        audio_ms=since_ms if audio_ms is None else audio_ms,
        took_ms=0,
        partials=(),
        text=text,
        words=(),
        confidence=1.0,
        floor_log_odds=None,
    )


async def test_an_utterance_that_began_before_the_recording_is_not_in_its_timeline(tmp_path: Path):
    call = OneCall(tmp_path)
    call.recorder.start()
    now_ms = call.events.now_ms()
    call.events.publish(read(now_ms + 400, 500, "my card number is 4 1 1 1"))
    # Given to a recogniser that was opened anew, with the audio from before.
    call.events.publish(read(now_ms + 500, 50, "4 1 1 1 and", audio_ms=700))
    call.events.publish(read(now_ms + 900, 300, "hello"))
    await call.close()
    events = read_recording(call.path).timeline()["events"]
    assert [each["text"] for each in events] == ["hello"]


async def test_a_cough_before_the_recording_takes_no_turn_out_of_it(tmp_path: Path):
    call = OneCall(tmp_path)
    call.events.publish(VoiceStarted(0, 100))
    call.events.publish(VoiceEnded(300, 100))
    call.recorder.start()
    call.events.publish(VoiceStarted(6_000, 100))
    call.events.publish(TurnEnded(7_000, "hello"))
    await call.close()
    events = read_recording(call.path).timeline()["events"]
    assert [each["event"] for each in events] == ["VoiceStarted", "TurnEnded"]


async def test_audio_of_another_rate_is_a_loss_of_the_recording(tmp_path: Path):
    call = OneCall(tmp_path)
    call.recorder.start()
    call.play(1.0)
    call.play(1.0, at_s=1.0, rate_hz=8_000)
    call.play(0.5, at_s=2.0, rate_hz=8_000)
    await call.close()
    assert call.kinds() == [RecordingStarted, RecordingDegraded, RecordingEnded]
    degraded, ended = call.seen[1:]
    assert isinstance(degraded, RecordingDegraded) and "it has 8000 Hz" in degraded.reason
    assert isinstance(ended, RecordingEnded) and ended.lost_ms == 1_500
    lost = read_recording(call.path).timeline()[BOT_AUDIO]["lost"]
    assert lost == [{"start_ms": 1_000, "length_ms": 1_500}]
