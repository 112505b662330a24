import subprocess
import sys
from pathlib import Path

import pytest

from parley.batch.destination import ParkedItem
from parley.batch.manifest import MANIFEST, ItemState, Manifest, hold_folder
from parley.batch.settings import RecogniserChoice
from parley.batch.sources import BatchSource, SourceKind
from parley.batch.transcript import Transcription, write_transcription
from parley.core.errors import ConfigError


def source(name: str) -> BatchSource:
    return BatchSource(name, f"/in/{name}", SourceKind.FILE, "1")


ITEMS = [(source("a.wav"), "key a"), (source("b.wav"), "key b")]


def write(folder: Path, name: str, key: str) -> None:
    chosen = RecogniserChoice(name="moonshine_tiny")
    write_transcription(
        folder,
        Transcription(
            key=key,
            source=name,
            duration_ms=0,
            speech_ms=0,
            channels="mixed",
            recogniser=chosen,
            segments=(),
        ),
    )


def names(sources: list[BatchSource]) -> list[str]:
    return [each.name for each in sources]


def test_a_finished_source_is_not_planned_again(tmp_path: Path):
    manifest = Manifest(tmp_path)
    assert names(manifest.plan(ITEMS)) == ["a.wav", "b.wav"]
    write(tmp_path, "a.wav", "key a")
    manifest.finish("a.wav", audio_ms=1_000, cpu_ms=20)
    manifest.close()
    manifest = Manifest(tmp_path)
    assert names(manifest.plan(ITEMS)) == ["b.wav"]
    assert manifest.count(ItemState.DONE) == 1


def test_outputs_that_were_written_before_a_kill_are_found(tmp_path: Path):
    Manifest(tmp_path).plan(ITEMS)
    write(tmp_path, "b.wav", "key b")
    manifest = Manifest(tmp_path)
    assert names(manifest.plan(ITEMS)) == ["a.wav"]
    assert manifest.count(ItemState.DONE) == 1


def test_outputs_are_found_without_a_manifest(tmp_path: Path):
    write(tmp_path, "a.wav", "key a")
    assert names(Manifest(tmp_path).plan(ITEMS)) == ["b.wav"]


def test_a_source_that_changed_or_lost_its_output_is_done_again(tmp_path: Path):
    for name, key in (("a.wav", "key a"), ("b.wav", "key b")):
        write(tmp_path, name, key)
    manifest = Manifest(tmp_path)
    assert manifest.plan(ITEMS) == []
    (tmp_path / "b.wav.json").unlink()
    assert names(manifest.plan([(source("a.wav"), "another key"), ITEMS[1]])) == ["a.wav", "b.wav"]


def test_a_source_is_parked_after_its_last_try_and_left_out(tmp_path: Path):
    manifest = Manifest(tmp_path)
    manifest.plan(ITEMS)
    assert not manifest.fail("a.wav", "it crashed", most_tries=2)
    assert names(manifest.plan(ITEMS)) == ["a.wav", "b.wav"]
    assert manifest.fail("a.wav", "it crashed again", most_tries=2)
    assert manifest.parked() == [ParkedItem("a.wav", "it crashed again", 2)]
    assert names(manifest.plan(ITEMS)) == ["b.wav"]
    assert names(manifest.plan([(source("a.wav"), "a new key"), ITEMS[1]])) == ["a.wav", "b.wav"]


def test_a_parked_source_is_tried_again_on_request(tmp_path: Path):
    manifest = Manifest(tmp_path)
    manifest.plan(ITEMS)
    assert manifest.fail("a.wav", "not audio", most_tries=1)
    assert names(manifest.plan(ITEMS, retry_parked=True)) == ["a.wav", "b.wav"]
    assert manifest.parked() == []


def test_a_file_that_is_no_manifest_is_reported(tmp_path: Path):
    (tmp_path / MANIFEST).write_bytes(b"something else entirely " * 100)
    with pytest.raises(ConfigError, match="not a manifest"):
        Manifest(tmp_path)


def test_a_folder_is_held_by_one_run_until_its_last_process_is_gone(tmp_path: Path):
    with hold_folder(tmp_path) as lock:
        held = subprocess.Popen(
            (sys.executable, "-c", "import sys; sys.stdin.read()"), stdin=subprocess.PIPE, pass_fds=(lock,)
        )
    with held:
        with pytest.raises(ConfigError, match="another run"), hold_folder(tmp_path):
            pass
        held.kill()
    with hold_folder(tmp_path):
        pass
