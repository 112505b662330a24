"""Recordings of a session as its readers find them: whole, half written and foreign."""

import io
import json
import os
import shutil
import uuid
import zipfile
from pathlib import Path

import pytest

from parley.core.errors import MediaError
from parley.recording.library import (
    RecordingSummaries,
    RecordingSummary,
    call_detail,
    client_replay_file,
    picture_file,
    recordings_of,
    replay_file,
    zipped,
)
from parley.recording.merge import PEAK_MS
from tests.recorded_call import BOT_LEVEL, CALLER_LEVEL, record_call

SESSION = str(uuid.UUID(int=7))


def recorded_calls(folder: Path, session_id: str) -> list[RecordingSummary]:
    return RecordingSummaries(folder).of_session(session_id)[0]


def archive_of(folder: Path, session_id: str) -> bytes:
    return b"".join(zipped(recordings_of(folder, session_id)))


async def test_a_call_is_listed_with_its_length_and_drawn_from_its_peaks(tmp_path: Path):
    path = await record_call(tmp_path, SESSION, seconds=1.25)
    (call,) = recorded_calls(tmp_path, SESSION)
    assert (call.call_id, call.transport, call.is_over, call.has_replay) == (path.name, "webrtc", True, True)
    assert 1_250 <= call.duration_ms < 1_300
    detail = call_detail(tmp_path, SESSION, path.name)
    assert [each["text"] for each in detail["events"]] == ["hello"]
    peaks = detail["peaks"]
    assert peaks["interval_ms"] == PEAK_MS
    assert len(peaks["bot"]) == len(peaks["caller"]) == 13
    # In percent of full scale, rounded up.
    assert set(peaks["bot"][:12]) == {-(-BOT_LEVEL * 100 // 32_768)}
    assert max(peaks["caller"]) == -(-CALLER_LEVEL * 100 // 32_768)


async def test_a_call_that_was_killed_is_listed_without_its_end(tmp_path: Path):
    path = await record_call(tmp_path, SESSION, merged=False)
    (path / "recording.json").unlink()
    (call,) = recorded_calls(tmp_path, SESSION)
    assert (call.is_over, call.has_replay, call.duration_ms) == (False, False, 0)
    with pytest.raises(MediaError, match="made when the call is over"):
        replay_file(tmp_path, SESSION, path.name)
    assert call_detail(tmp_path, SESSION, path.name)["peaks"] is None


BROKEN = ("", "[]", '{"duration_ms": "long"}', '{"events": {"a": 1}}', "\0", '{"events": [NaN]}')


@pytest.mark.parametrize("timeline", BROKEN)
async def test_a_broken_timeline_costs_the_timeline_alone(tmp_path: Path, timeline: str):
    path = await record_call(tmp_path, SESSION)
    (path / "recording.json").write_text(timeline)
    (path / "peaks.json").write_text(timeline)
    (call,) = recorded_calls(tmp_path, SESSION)
    assert call.has_replay and call.duration_ms == 0
    assert len(replay_file(tmp_path, SESSION, path.name).read()) > 1_000
    json.dumps(call_detail(tmp_path, SESSION, path.name), allow_nan=False)


async def test_foreign_folders_and_links_are_as_absent(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    session = path.parent
    (session / "notes").mkdir()
    linked = session / uuid.uuid4().hex
    linked.symlink_to(path)
    copied = session / uuid.uuid4().hex
    shutil.copytree(path, copied)
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(b"secret")
    (path / "user_frames").mkdir()
    (path / "user_frames" / "000001000.jpg").symlink_to(secret)
    (path / "user_images").mkdir()
    (path / "user_images" / "000001000-0.jpg").symlink_to(secret)
    assert [each.call_id for each in recorded_calls(tmp_path, SESSION)] == [path.name]
    for name in (linked.name, copied.name, "..", "notes", "a" * 32):
        with pytest.raises(MediaError):
            replay_file(tmp_path, SESSION, name)
    with pytest.raises(MediaError, match="no such picture"):
        picture_file(tmp_path, SESSION, path.name, 1_000)
    assert b"secret" not in archive_of(tmp_path, SESSION)


async def test_an_archive_has_the_files_of_all_calls_and_no_others(tmp_path: Path):
    one, other = [await record_call(tmp_path, SESSION) for _ in range(2)]
    (one / "note.txt").write_text("mine")
    (one / "user_images").mkdir()
    (one / "user_images" / "000001000-0.jpg").write_bytes(b"shown")
    packed = io.BytesIO(archive_of(tmp_path, SESSION))
    with zipfile.ZipFile(packed) as archive:
        assert archive.testzip() is None
        names = set(archive.namelist())
        assert json.loads(archive.read(f"{one.name}/meta.json"))["call_id"] == one.name
        assert archive.read(f"{other.name}/merged_replay.wav") == (other / "merged_replay.wav").read_bytes()
    files = (
        *("meta.json", "recording.json", "peaks.json", "merged_replay.wav"),
        *("user_audio/000000.flac", "ai_audio/000000.flac"),
    )
    shown = f"{one.name}/user_images/000001000-0.jpg"
    assert names == {shown, *(f"{call.name}/{file}" for call in (one, other) for file in files)}


async def test_a_timeline_is_read_once_for_each_of_its_versions(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    summaries = RecordingSummaries(tmp_path)
    (first,), read_bytes = summaries.of_session(SESSION)
    assert read_bytes == (path / "recording.json").stat().st_size
    assert summaries.of_session(SESSION) == ([first], 0)
    (path / "recording.json").write_text('{"duration_ms": 77}')
    (again,), read_bytes = summaries.of_session(SESSION)
    assert (again.duration_ms, read_bytes) == (77, 19)


async def test_a_timeline_that_is_too_large_for_a_server_is_not_read(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    (path / "recording.json").write_text('{"duration_ms": 77, "filler": "' + "x" * 4_000_000 + '"}')
    (call,) = recorded_calls(tmp_path, SESSION)
    assert (call.duration_ms, call.has_replay) == (0, True)


async def test_a_session_that_is_a_link_has_no_recordings(tmp_path: Path):
    path = await record_call(tmp_path / "elsewhere", SESSION)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / SESSION).symlink_to(path.parent)
    assert recorded_calls(tmp_path, SESSION) == []
    with pytest.raises(MediaError):
        replay_file(tmp_path, SESSION, path.name)


async def test_an_archive_breaks_off_where_a_file_is_gone_and_marks_its_session_as_used(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    os.utime(path / "meta.json", (1, 1))
    pieces = zipped(recordings_of(tmp_path, SESSION))
    next(pieces)
    assert (path / "meta.json").stat().st_mtime > 1_000_000
    shutil.rmtree(path)
    with pytest.raises(OSError):
        list(pieces)


def test_a_session_without_recordings_has_an_empty_list(tmp_path: Path):
    assert recorded_calls(tmp_path, SESSION) == []
    with pytest.raises(MediaError, match="not the id of a session"):
        recorded_calls(tmp_path, "../other")


async def test_of_several_recordings_of_a_client_the_latest_is_shown(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    for at_s, name in enumerate(("frontend_replay.webm", "frontend_replay.mp4", "frontend_replay.webm")):
        (path / name).write_bytes(name.encode())
        os.utime(path / name, (at_s + 1, at_s + 1))
        (call,) = recorded_calls(tmp_path, SESSION)
        found, media_type = client_replay_file(tmp_path, SESSION, path.name)
        assert (call.client_replay, found.read()) == (name, name.encode())
        assert media_type == f"video/{name[-4:].lstrip('.')}"
