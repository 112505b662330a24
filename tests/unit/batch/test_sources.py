import os
import shutil
import uuid
from pathlib import Path

import pytest

from parley.batch.settings import BatchSettings, FileLimits, RecogniserChoice
from parley.batch.sources import SourceKind, find_sources
from parley.core.errors import ConfigError
from tests.recorded_call import record_call

SETTINGS = BatchSettings(recogniser=RecogniserChoice(name="moonshine_tiny"))


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def test_audio_files_below_a_folder_are_found_in_order(tmp_path: Path):
    for name in ("b.wav", "a/z.MP3", "a/notes.txt", "c.flac", "a/b/c.m4a"):
        touch(tmp_path / name)
    found = find_sources(tmp_path)
    assert [each.name for each in found] == ["a/b/c.m4a", "a/z.MP3", "b.wav", "c.flac"]
    assert {each.kind for each in found} == {SourceKind.FILE}
    assert find_sources(tmp_path / "b.wav")[0].name == "b.wav"


def test_links_to_folders_are_not_followed_and_links_to_files_are_reported(tmp_path: Path):
    inside = tmp_path / "in"
    touch(inside / "a.wav")
    (inside / "loop").symlink_to(inside)
    (inside / "b.wav").symlink_to("/etc/passwd")
    assert [each.name for each in find_sources(inside)] == ["a.wav", "b.wav"]


async def test_a_recorded_call_is_one_source(tmp_path: Path):
    session = str(uuid.uuid4())
    path = await record_call(tmp_path, session)
    touch(tmp_path / "sessions" / "other.wav")
    call, file = find_sources(tmp_path)
    assert (call.kind, call.name) == (SourceKind.CALL, f"sessions/{session}/{path.name}")
    assert file.name == "sessions/other.wav"


async def test_a_call_that_is_being_recorded_is_left_for_later(tmp_path: Path):
    path = await record_call(tmp_path, str(uuid.uuid4()))
    (path / "recording.json").unlink()
    touch(tmp_path / "a.wav")
    assert [each.name for each in find_sources(tmp_path)] == ["a.wav"]


def test_a_key_follows_the_content_and_the_settings(tmp_path: Path):
    path = touch(tmp_path / "a.wav")
    (source,) = find_sources(path)
    limits = SETTINGS.model_copy(update={"limits": FileLimits(most_hours=1)})
    split = SETTINGS.model_copy(update={"channels": "split"})
    assert source.key(SETTINGS) == source.key(limits) != source.key(split)
    path.write_bytes(b"xy")
    assert find_sources(path)[0].key(SETTINGS) != source.key(SETTINGS)


def test_a_name_that_is_no_text_is_written_as_one(tmp_path: Path):
    path = os.fsencode(tmp_path) + b"/caf\xe9.wav"
    with open(path, "wb") as file:
        file.write(b"x")
    (source,) = find_sources(tmp_path)
    assert source.name == r"caf\xe9.wav"
    assert os.fsencode(source.location) == path


def test_nothing_to_do_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="neither audio files"):
        find_sources(tmp_path)
    shutil.rmtree(tmp_path)
    with pytest.raises(ConfigError, match="no such"):
        find_sources(tmp_path)
