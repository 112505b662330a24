"""Recordings that are encrypted on the disk: keys, altered files, and everything that reads them."""

import base64
import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from parley.core.errors import ConfigError, MediaError
from parley.recording.at_rest import (
    HEADER_BYTES,
    KEYS_ENV,
    MAGIC,
    PLAIN_BYTES,
    AlteredFileError,
    EncryptedFile,
    RecordingKeyError,
    RecordingKeys,
    check_encryption,
    encrypted,
)
from parley.recording.folder import BOT_AUDIO, CALLER_AUDIO, CallRecording, read_recording
from parley.recording.library import RecordingSummaries, call_detail, recordings_of, replay_file, zipped
from parley.recording.merge import main, merge_call, track_samples, unmerged_calls
from parley.recording.video import film_call
from tests.recorded_call import BOT_LEVEL, RATE_HZ, record_call

SESSION = str(uuid.UUID(int=9))
PLACE = f"{SESSION}/{'c' * 32}/user_audio/000000.flac"
OLD, NEW = (base64.b64encode(bytes([each]) * 32).decode() for each in (1, 2))
LENGTHS = (0, 1, PLAIN_BYTES - 1, PLAIN_BYTES, PLAIN_BYTES + 1, 3 * PLAIN_BYTES, 200_001)
STORED_CHUNK = 12 + PLAIN_BYTES + 16


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(KEYS_ENV, OLD)


def keys() -> RecordingKeys:
    return RecordingKeys.from_environment()


def opened(stored: bytes, place: str = PLACE) -> EncryptedFile:
    return EncryptedFile(io.BytesIO(stored), keys(), place)


@pytest.mark.parametrize("length", LENGTHS)
def test_what_was_written_is_read_also_from_the_middle(length: int):
    content = random.Random(length).randbytes(length)
    stored = encrypted(content, keys(), PLACE)
    file = io.BufferedReader(opened(stored))
    assert file.read() == content
    chance = random.Random(1)
    for _ in range(30):
        start, count = chance.randint(0, length), chance.randint(0, 70_000)
        file.seek(start)
        assert file.read(count) == content[start : start + count]
    assert file.seek(0, io.SEEK_END) == length


def test_a_part_is_read_without_the_rest_of_a_long_file():
    stored = bytearray(encrypted(random.Random(3).randbytes(10 * PLAIN_BYTES), keys(), PLACE))
    stored[HEADER_BYTES + 5 * STORED_CHUNK + 100] ^= 1
    file = opened(bytes(stored))
    file.seek(7 * PLAIN_BYTES)
    assert len(file.read(1_000)) == 1_000
    file.seek(5 * PLAIN_BYTES)
    with pytest.raises(AlteredFileError):
        file.read(1)


def test_a_file_is_written_over_at_any_place():
    raw, content = io.BytesIO(), bytearray()
    file, chance = EncryptedFile(raw, keys(), PLACE, is_new=True), random.Random(5)
    for _ in range(60):
        start, data = chance.randint(0, len(content)), chance.randbytes(chance.randint(0, 40_000))
        file.seek(start)
        assert file.write(data) == len(data)
        content[start : start + len(data)] = data
    file.finish()
    assert opened(raw.getvalue()).read() == content
    with pytest.raises(OSError):
        file.seek(len(content) + 1)


def test_the_same_content_is_never_stored_alike():
    one, other = (encrypted(b"words" * 1_000, keys(), PLACE) for _ in range(2))
    assert one[HEADER_BYTES:] != other[HEADER_BYTES:] and b"words" not in one


@pytest.mark.parametrize("at", [0, 10, 20, HEADER_BYTES, HEADER_BYTES + 20, -1])
def test_a_changed_byte_anywhere_is_noticed(at: int):
    stored = bytearray(encrypted(b"x" * 100, keys(), PLACE))
    stored[at] ^= 1
    with pytest.raises(RecordingKeyError if at == 10 else AlteredFileError):
        opened(bytes(stored)).read()


@pytest.mark.parametrize("left", [0, 5, HEADER_BYTES, HEADER_BYTES + 20, HEADER_BYTES + STORED_CHUNK, -1])
def test_a_file_that_was_cut_off_is_noticed(left: int):
    stored = encrypted(b"x" * (PLAIN_BYTES + 50), keys(), PLACE)
    with pytest.raises(AlteredFileError):
        opened(stored[:left]).read()


def test_chunks_that_change_places_and_files_that_do_are_noticed():
    stored = encrypted(random.Random(2).randbytes(3 * PLAIN_BYTES), keys(), PLACE)
    head, chunks = stored[:HEADER_BYTES], stored[HEADER_BYTES:]
    one, two, three = (chunks[at : at + STORED_CHUNK] for at in range(0, len(chunks), STORED_CHUNK))
    with pytest.raises(AlteredFileError):
        opened(head + two + one + three).read()
    with pytest.raises(AlteredFileError, match="moved here"):
        opened(stored, PLACE.replace("user_audio", "ai_audio"))


def test_a_new_key_encrypts_and_an_old_one_still_decrypts(monkeypatch: pytest.MonkeyPatch):
    before = encrypted(b"before", keys(), PLACE)
    monkeypatch.setenv(KEYS_ENV, f"{NEW}, {OLD}")
    after = encrypted(b"after", keys(), PLACE)
    assert (opened(before).read(), opened(after).read()) == (b"before", b"after")
    monkeypatch.setenv(KEYS_ENV, NEW)
    assert opened(after).read() == b"after"
    with pytest.raises(RecordingKeyError) as missing:
        opened(before)
    old, new = (RecordingKeys([base64.b64decode(each)]).ids[0] for each in (OLD, NEW))
    assert f"the key {old}" in str(missing.value) and f"has only {new}" in str(missing.value)


@pytest.mark.parametrize("given", ["short", "!" * 44, base64.b64encode(b"x" * 31).decode(), f"{OLD},x"])
def test_a_key_that_is_none_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch, given: str):
    monkeypatch.setenv(KEYS_ENV, given)
    with pytest.raises(ConfigError, match="openssl rand -base64 32") as refused:
        check_encryption()
    assert given not in str(refused.value)


def test_encryption_without_a_key_is_refused_with_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(KEYS_ENV)
    with pytest.raises(ConfigError, match=f"recording.encrypted: set {KEYS_ENV}.*openssl rand -base64 32"):
        check_encryption()


def stored_files(path: Path) -> list[Path]:
    return [each for each in path.rglob("*") if each.is_file()]


async def filmed_call(folder: Path) -> CallRecording:
    """Return a recorded call with two pictures, which a recorder with these keys could have written."""
    recording = read_recording(await record_call(folder, SESSION, seconds=2.5, encrypted=True))
    for at_ms in (0, 1_000):
        picture = io.BytesIO()
        Image.new("RGB", (64, 48), "lime").save(picture, "JPEG")
        recording.files.write(recording.path / "user_frames" / f"{at_ms:09}.jpg", picture.getvalue())
    film_call(recording)
    return recording


async def test_no_file_of_an_encrypted_call_can_be_read_without_its_key(tmp_path: Path):
    recording = await filmed_call(tmp_path)
    files = stored_files(recording.path)
    assert {each.suffix for each in files} == {".json", ".flac", ".jpg", ".wav", ".mp4"} and len(files) == 9
    for each in files:
        stored = each.read_bytes()
        assert stored.startswith(MAGIC)
        assert not any(mark in stored for mark in (b"fLaC", b"RIFF", b"ftyp", b"JFIF", b"hello", b"webrtc"))


async def test_readers_get_what_was_recorded(tmp_path: Path):
    recording = await filmed_call(tmp_path)
    (call,) = RecordingSummaries(tmp_path).of_session(SESSION)[0]
    assert (call.has_replay, call.has_film, call.problem) == (True, True, "")
    detail = call_detail(tmp_path, SESSION, recording.call_id)
    assert [each["text"] for each in detail["events"]] == ["hello"] and len(detail["peaks"]["bot"]) == 25
    file, size = replay_file(tmp_path, SESSION, recording.call_id).open()
    with wave.open(file) as audio:
        stereo = np.frombuffer(audio.readframes(audio.getnframes()), "<i2").reshape(-1, 2)
        assert size == 44 + stereo.nbytes
    assert len(stereo) == 2.5 * RATE_HZ and abs(int(stereo[:, 1].max()) - BOT_LEVEL) <= 1
    assert len(track_samples(recording, CALLER_AUDIO, RATE_HZ)) == 2.5 * RATE_HZ
    with zipfile.ZipFile(io.BytesIO(b"".join(zipped(recordings_of(tmp_path, SESSION))))) as archive:
        assert archive.testzip() is None and len(archive.namelist()) == 9
        assert json.loads(archive.read(f"{recording.call_id}/meta.json"))["transport"] == "webrtc"
        flac = archive.read(f"{recording.call_id}/{BOT_AUDIO}/000000.flac")
        assert soundfile.info(io.BytesIO(flac)).samplerate == RATE_HZ
        assert b"ftyp" in archive.read(f"{recording.call_id}/merged_replay.mp4")[:32]


async def test_what_a_killed_server_left_is_merged_encrypted(tmp_path: Path):
    path = await record_call(tmp_path, SESSION, seconds=6, merged=False, encrypted=True)
    (path / "recording.json").unlink()
    # Of a merge that was killed.
    (path / ".merged_replay.wav").write_bytes(MAGIC + b"half")
    assert main([str(path)]) == 0
    assert all(each.read_bytes().startswith(MAGIC) for each in stored_files(path))
    assert not (path / ".merged_replay.wav").exists()
    with wave.open(read_recording(path).files.open(path / "merged_replay.wav")) as audio:
        assert audio.getnframes() == 6 * RATE_HZ


async def test_a_missing_key_is_one_clear_line_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path = await record_call(tmp_path, SESSION, merged=False, encrypted=True)
    plain = await record_call(tmp_path, SESSION)
    monkeypatch.setenv(KEYS_ENV, NEW)
    problem, readable = RecordingSummaries(tmp_path).of_session(SESSION)[0]
    assert (readable.call_id, problem.call_id, problem.has_replay) == (plain.name, path.name, False)
    assert KEYS_ENV in problem.problem
    for read in (
        lambda: recordings_of(tmp_path, SESSION),
        lambda: call_detail(tmp_path, SESSION, path.name),
        lambda: replay_file(tmp_path, SESSION, path.name),
    ):
        with pytest.raises(RecordingKeyError, match=KEYS_ENV):
            read()
    assert main([str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert list(unmerged_calls(tmp_path)) == []
    monkeypatch.setenv(KEYS_ENV, "no key")
    assert main([str(path)]) == 1
    assert KEYS_ENV in capsys.readouterr().err


async def test_a_segment_of_another_call_or_side_is_silence_and_named(tmp_path: Path):
    path = await record_call(tmp_path, SESSION, merged=False, encrypted=True)
    shutil.copy(path / BOT_AUDIO / "000000.flac", path / CALLER_AUDIO / "000000.flac")
    assert merge_call(read_recording(path)) == [f"{CALLER_AUDIO}/000000.flac"]
    with pytest.raises(MediaError, match="cannot be read|nothing was recorded"):
        track_samples(read_recording(path), CALLER_AUDIO, RATE_HZ)


async def test_a_plain_file_in_an_encrypted_call_is_refused(tmp_path: Path):
    path = await record_call(tmp_path, SESSION, encrypted=True)
    (path / "recording.json").write_text('{"events": [{"at_ms": 1, "event": "TurnEnded", "text": "forged"}]}')
    with pytest.raises(AlteredFileError, match=r"recording\.json: not encrypted"):
        call_detail(tmp_path, SESSION, path.name)
    (problem,) = RecordingSummaries(tmp_path).of_session(SESSION)[0]
    assert "not encrypted" in problem.problem


async def test_recordings_from_before_encryption_stay_as_they_are(tmp_path: Path):
    path = await record_call(tmp_path, SESSION, merged=False)
    before = {each: hashlib.sha256(each.read_bytes()).hexdigest() for each in stored_files(path)}
    recording = read_recording(path)
    assert not recording.files.are_encrypted
    merge_call(recording)
    assert (path / "merged_replay.wav").read_bytes().startswith(b"RIFF")
    assert all(hashlib.sha256(each.read_bytes()).hexdigest() == was for each, was in before.items())


def test_a_failure_while_a_long_file_is_written_leaves_the_old_one(tmp_path: Path):
    folder = tmp_path / SESSION / ("c" * 32)
    os.makedirs(folder)
    from parley.recording.call_files import CallFiles

    files = CallFiles(folder, keys())
    files.write(folder / "long", b"old")
    with pytest.raises(RuntimeError), files.replacing(folder / "long") as file:
        file.write(b"new")
        raise RuntimeError("the encoder failed")
    assert files.read(folder / "long") == b"old" and [each.name for each in folder.iterdir()] == ["long"]


# Records twelve seconds of both sides, with the wait of a call that goes on.
RECORDING_CHILD = """
import asyncio, sys, uuid
from pathlib import Path
import numpy as np
from parley.recording.disk import RecordingDisk
from parley.recording.recorder import CallRecorder, RecordingSource
from parley.recording.settings import RecordingSettings
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

async def main(folder, session):
    settings = RecordingSettings(enabled=True, folder=Path(folder), min_free_gb=0, encrypted=True)
    began_us = LoopClock().now_us()
    source = RecordingSource(session, uuid.uuid4().hex, "webrtc", "embedded", False, began_us, 0)
    recorder = CallRecorder(settings, source, CallEvents(), disk=RecordingDisk(), merging=None)
    recorder.start()
    second = (5_000 * np.sin(np.arange(16_000) / 5)).astype("<i2").tobytes()
    for number in range(12):
        recorder.hear(second, 16_000)
        recorder.play(second, 16_000, began_us + number * 1_000_000)
    await recorder.run()

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_process_that_is_killed_loses_at_most_the_present_segment(tmp_path: Path):
    child = subprocess.Popen((sys.executable, "-c", RECORDING_CHILD, str(tmp_path), SESSION))
    try:
        until_s = time.monotonic() + 60
        while len(list(tmp_path.rglob("00000[01].flac"))) < 4:
            assert child.poll() is None and time.monotonic() < until_s
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
    (meta,) = tmp_path.rglob("meta.json")
    recording = read_recording(meta.parent)
    assert recording.files.are_encrypted and merge_call(recording) == []
    assert all(each.read_bytes().startswith(MAGIC) for each in stored_files(recording.path))
    for side in (CALLER_AUDIO, BOT_AUDIO):
        assert len(track_samples(recording, side, RATE_HZ)) >= 10 * RATE_HZ
