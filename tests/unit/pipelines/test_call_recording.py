"""Taps of a recorded call, and what a server does with recordings when it starts."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pipecat.frames.frames import InputAudioRawFrame, UserImageRawFrame

from parley.command.check import problems
from parley.configs.deployment import Deployment
from parley.core.call_events import (
    CallEvent,
    RecordingAnnounced,
    RecordingConsentChanged,
    RecordingEnded,
    RecordingStarted,
    ReplyFinished,
)
from parley.core.errors import ConfigError
from parley.core.pictures import CAMERA, SCREEN, SHOWN
from parley.core.timeline import HeardMark, HeardReply
from parley.pipelines.call import Call, LiveCall, SocketClient
from parley.pipelines.call_recording import CallRecordings
from parley.pipelines.media_taps import _notice_input
from parley.pipelines.modes import CASCADE
from parley.protocols.client_protocol import SessionUpdate
from parley.recording.at_rest import KEYS_ENV
from parley.recording.settings import RecordingSettings
from parley.runtime.loop_clock import LoopClock
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.recorded_call import RATE_HZ, record_call

PIXELS = bytes(2 * 2 * 3)


class Follower:
    """Follower of a call's media that keeps everything."""

    def __init__(self) -> None:
        self.heard: list[tuple[bytes, int]] = []
        self.played: list[tuple[bytes, int, int | None]] = []
        self.seen: list[tuple[bytes, tuple[int, int]]] = []

    def hear(self, pcm: bytes, rate_hz: int) -> None:
        self.heard.append((pcm, rate_hz))

    def play(self, pcm: bytes, rate_hz: int, at_us: int | None) -> None:
        self.played.append((pcm, rate_hz, at_us))

    def see(self, pixels: bytes, size: tuple[int, int]) -> None:
        self.seen.append((pixels, size))


def picture(source: str, format: str = "RGB") -> UserImageRawFrame:
    frame = UserImageRawFrame(user_id="caller", image=PIXELS, size=(2, 2), format=format)
    frame.transport_source = source
    return frame


async def test_both_sides_and_the_camera_are_followed_until_the_call_is_over():
    live, follower = LiveCall(LoopClock(), rate_hz=8_000), Follower()
    live.follow_media(follower)
    _notice_input(live, InputAudioRawFrame(audio=b"\1\0", sample_rate=16_000, num_channels=1))
    live.on_packet(b"\2\0")
    live.on_packet(b"\3\0", 7)
    live.on_accepted(b"\4\0", 24_000)
    # A file is no raw picture, and what is shown with a turn is in the session.
    for shown in (picture(CAMERA), picture(SCREEN), picture(SHOWN), picture(CAMERA, format="JPEG")):
        _notice_input(live, shown)
    live.close()
    live.on_packet(b"\5\0")
    assert follower.heard == [(b"\1\0", 16_000)]
    assert follower.played == [(b"\2\0", 8_000, None), (b"\3\0", 8_000, 7), (b"\4\0", 24_000, None)]
    assert follower.seen == [(PIXELS, (2, 2))]


async def until_gone(path: Path) -> None:
    async with asyncio.timeout(5):
        while path.exists():
            await asyncio.sleep(0.01)


async def test_a_server_that_only_has_recordings_completes_a_removal_that_was_killed(tmp_path: Path):
    half = tmp_path / "sessions" / f".removed-{uuid.uuid4()}" / uuid.uuid4().hex
    half.mkdir(parents=True)
    recordings = CallRecordings(RecordingSettings(folder=tmp_path, retention_days=1), "embedded")
    await until_gone(half.parent)
    await recordings.close()


async def test_a_server_that_records_makes_the_stereo_file_that_an_earlier_one_did_not(tmp_path: Path):
    path = await record_call(tmp_path, str(uuid.uuid4()), merged=False)
    Image.new("RGB", (64, 48), "red").save(tmp_path / "picture.jpg")
    (path / "user_frames").mkdir()
    (tmp_path / "picture.jpg").rename(path / "user_frames" / "000000000.jpg")
    # As a film that was killed has left it.
    (path / ".merged_replay.mp4").write_bytes(b"x")
    full = CallRecordings(RecordingSettings(enabled=True, folder=tmp_path, min_free_gb=1e9), "embedded")
    async with asyncio.timeout(10):
        while (path / ".merged_replay.mp4").exists():
            await asyncio.sleep(0.01)
    await full.close()
    assert not (path / "merged_replay.wav").exists()
    recordings = CallRecordings(RecordingSettings(enabled=True, folder=tmp_path, min_free_gb=0), "embedded")
    async with asyncio.timeout(10):
        while not (path / "merged_replay.mp4").exists():
            await asyncio.sleep(0.01)
    await recordings.close()
    assert (path / "merged_replay.wav").exists()


def test_encryption_without_a_key_is_refused_at_the_start_and_by_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(KEYS_ENV, raising=False)
    settings = RecordingSettings(folder=tmp_path, encrypted=True)
    with pytest.raises(ConfigError, match=f"set {KEYS_ENV}"):
        CallRecordings(settings, "embedded")
    assert [each for each in problems(Deployment(recording=settings), CASCADE) if KEYS_ENV in each]
    monkeypatch.setenv(KEYS_ENV, "no key")
    with pytest.raises(ConfigError, match="32 bytes in base64"):
        CallRecordings(RecordingSettings(folder=tmp_path), "embedded")


class Caller:
    """Call whose client asks its caller for their consent, with what is published about its recording."""

    def __init__(self, conversation: Conversation, given: bool | None) -> None:
        self.given = given
        client = SocketClient(asks_consent=True, requested=lambda: SessionUpdate(allow_recording=self.given))
        self.live = LiveCall(conversation.clock, rate_hz=RATE_HZ)
        self.call = Call(conversation, "websocket", self.live, client=client)
        self.published: list[type[CallEvent]] = []
        for kind in (RecordingAnnounced, RecordingStarted, RecordingEnded):
            self.call.events.subscribe(kind, lambda event: self.published.append(type(event)))

    def decide(self, given: bool) -> None:
        self.given = given
        self.call.events.publish(RecordingConsentChanged(self.call.events.now_ms(), given))

    def speak(self) -> None:
        """Let two segments of the bot be played."""
        for second in range(12):
            began_us = self.live.began_ms * 1_000
            self.live.on_packet(bytes(range(1, 251)) * (RATE_HZ * 2 // 250), began_us + second * 1_000_000)

    def hears(self, phrase: str) -> None:
        heard = HeardReply("a", phrase, "", False, HeardMark("a", 100, 0), True, 0, 100_000)
        self.call.events.publish(ReplyFinished(self.call.events.now_ms(), heard))


@asynccontextmanager
async def asked(folder: Path, given: bool | None, **settings: Any) -> AsyncIterator[tuple[Caller, str]]:
    """Yield a call that is recorded where its caller agrees, and the announcement of it."""
    recordings = CallRecordings(
        RecordingSettings(enabled=True, folder=folder, min_free_gb=0, merged=False, **settings), "embedded"
    )
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    try:
        async with Conversations(store, compactor=Compactor()).open() as conversation:
            caller = Caller(conversation, given)
            async with recordings.recorded(caller.call, CASCADE):
                yield caller, recordings.announcement_of(caller.call)
    finally:
        await store.close()
        await recordings.close()


def recorded_in(folder: Path) -> list[str]:
    """Return the segments of the bot that are kept."""
    return sorted(path.name for path in (folder / "sessions").rglob("ai_audio/*"))


@pytest.mark.parametrize("given", [None, False])
async def test_a_call_is_not_recorded_before_its_caller_agrees(tmp_path: Path, given: bool | None):
    async with asked(tmp_path, given) as (caller, _):
        caller.speak()
        assert caller.published == []
    assert not (tmp_path / "sessions").exists()


async def test_a_call_is_recorded_from_the_moment_that_its_caller_agrees(tmp_path: Path):
    async with asked(tmp_path, None) as (caller, _):
        caller.decide(True)
        caller.decide(True)
        caller.speak()
    assert caller.published == [RecordingStarted, RecordingEnded]
    assert recorded_in(tmp_path)


async def test_a_recording_that_its_caller_refuses_later_is_removed(tmp_path: Path):
    async with asked(tmp_path, True) as (caller, _):
        caller.speak()
        caller.decide(False)
        caller.speak()
        # It is not begun anew either.
        caller.decide(True)
        caller.speak()
        assert caller.published == [RecordingStarted, RecordingEnded]
    assert recorded_in(tmp_path) == [] and not list((tmp_path / "sessions").rglob("meta.json"))


async def test_who_refuses_hears_no_announcement_and_who_agrees_is_recorded_after_it(tmp_path: Path):
    phrase = "This call is recorded."
    async with asked(tmp_path, False, announcement=phrase) as (caller, announcement):
        assert announcement == ""
        # Too late: they have not heard that they are recorded.
        caller.decide(True)
        assert caller.published == []
    async with asked(tmp_path, True, announcement=phrase) as (caller, announcement):
        assert announcement == phrase and caller.published == []
        caller.hears(phrase)
        assert caller.published == [RecordingAnnounced, RecordingStarted]
