"""Removal of recordings by age, by capacity and by hand."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parley.core.errors import MediaError
from parley.recording import retention
from parley.recording.retention import (
    UPLOADING,
    UPLOADING_S,
    RemovedSessions,
    RetentionThread,
    clean,
    complete_removals,
    lines_of,
    main,
    mark_used,
    only_one,
    remove_session,
)

DAY_S = 86_400
SIZE = 1_000_000


def recorded(folder: Path, *, days_ago: float, size: int = SIZE) -> Path:
    """Write a session with one call; return its folder."""
    session, call = str(uuid.uuid4()), uuid.uuid4().hex
    path = folder / "sessions" / session / call
    (path / "ai_audio").mkdir(parents=True)
    meta = {"version": 1, "session_id": session, "call_id": call, "segment_ms": 5_000}
    (path / "meta.json").write_text(json.dumps(meta))
    (path / "ai_audio" / "000000.flac").write_bytes(bytes(size))
    used_s = time.time() - days_ago * DAY_S
    for each in (*path.rglob("*"), path, path.parent):
        os.utime(each, (used_s, used_s))
    return path.parent


def test_old_sessions_go_and_young_ones_stay(tmp_path: Path):
    old, young = recorded(tmp_path, days_ago=31), recorded(tmp_path, days_ago=29)
    report = clean(tmp_path, retention_days=30)
    assert [each.session_id for each in report.removed] == [old.name]
    (removed,) = report.removed
    assert (removed.calls, removed.files) == (1, 2) and removed.bytes > SIZE
    assert not old.exists() and young.exists()


def test_the_least_recently_used_go_until_the_rest_fits(tmp_path: Path):
    sessions = [recorded(tmp_path, days_ago=days) for days in (5, 4, 3, 2)]
    # Read today: it is the most recently used one now, but its call is over for long.
    (call,) = sessions[0].iterdir()
    mark_used(call)
    report = clean(tmp_path, max_storage_gb=2.5e-3)
    assert [each.session_id for each in report.removed] == [each.name for each in sessions[1:3]]
    assert sessions[0].exists() and sessions[3].exists()
    assert report.bytes < 2.5e6


def test_a_dry_run_says_what_would_go_and_removes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    old = recorded(tmp_path, days_ago=31)
    assert main(["--data-dir", str(tmp_path), "--retention-days", "30", "--dry-run"]) == 0
    assert f"would remove {old.name}: 1 calls, 2 files, 1.0 MB" in capsys.readouterr().out
    assert old.exists()


def test_what_is_pinned_in_use_or_foreign_stays_with_a_reason(tmp_path: Path):
    pinned, foreign, linked, used = (recorded(tmp_path, days_ago=31) for _ in range(4))
    (pinned / "pinned").touch()
    (foreign / "notes.txt").write_text("mine")
    (next(linked.iterdir()) / "user_audio").symlink_to(tmp_path)
    mark_used(next(used.iterdir()))
    past = time.time() - 31 * DAY_S
    for each in (pinned / "pinned", pinned, foreign / "notes.txt", foreign):
        os.utime(each, (past, past))
    for each in (next(linked.iterdir()) / "user_audio", next(linked.iterdir())):
        os.utime(each, (past, past), follow_symlinks=False)
    report = clean(tmp_path, retention_days=30, max_storage_gb=1e-6)
    assert report.removed == []
    assert report.kept == {
        pinned.name: "pinned",
        foreign.name: "notes.txt is not a part of a recording",
        linked.name: "user_audio is not a part of a recording",
        used.name: "in use: written or read within ten minutes",
    }
    assert len(lines_of(report, dry_run=False)) == 5
    assert (tmp_path / "sessions").exists()


def test_names_that_are_no_sessions_are_left_alone(tmp_path: Path):
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    recorded(root, days_ago=1)
    victim = recorded(elsewhere, days_ago=400)
    (root / "sessions" / "holiday").mkdir()
    (root / "sessions" / str(uuid.uuid4())).symlink_to(victim, target_is_directory=True)
    report = clean(root, retention_days=30)
    assert report.removed == [] and (victim.exists(), len(list(victim.iterdir()))) == (True, 1)


def test_a_removal_that_was_killed_is_completed(tmp_path: Path):
    half = recorded(tmp_path, days_ago=31)
    half.rename(half.with_name(f".removed-{half.name}"))
    clean(tmp_path, retention_days=30)
    assert list((tmp_path / "sessions").iterdir()) == []


@pytest.mark.parametrize("session", ["..", "../..", "/etc", "", "x" * 36])
def test_a_name_that_is_no_session_removes_nothing(tmp_path: Path, session: str):
    kept = recorded(tmp_path, days_ago=1)
    with pytest.raises(MediaError, match="not the id of a session"):
        remove_session(tmp_path, session)
    assert kept.exists()


def test_deleting_a_session_says_what_was_removed_and_an_unknown_one_had_nothing(tmp_path: Path):
    session = recorded(tmp_path, days_ago=0)
    (session / "pinned").touch()
    removed = remove_session(tmp_path, session.name)
    assert (removed.calls, removed.files) == (1, 3) and not session.exists()
    assert remove_session(tmp_path, session.name).files == 0


def test_the_command_says_what_is_missing(tmp_path: Path):
    def told(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "recording.retention", *arguments], capture_output=True, text=True
        )
        assert done.returncode == 2
        return done.stderr

    assert "has no folder sessions" in told("--data-dir", str(tmp_path), "--retention-days", "1")
    assert "give --retention-days" in told("--data-dir", str(tmp_path))
    assert "--retention-days" in told("--data-dir", str(tmp_path), "--retention-days", "-1")


def test_several_removers_of_one_session_leave_nothing_and_none_fails(tmp_path: Path):
    for _ in range(10):
        session = recorded(tmp_path, days_ago=0, size=10)
        for n in range(300):
            (next(session.iterdir()) / "ai_audio" / f"{n:06}.flac").write_bytes(b"x")
        # As a removal of the same session that was killed has left it.
        (session.parent / f".removed-{session.name}").mkdir(exist_ok=True)
        start = threading.Barrier(4)

        def remove(session_id: str = session.name, start: threading.Barrier = start) -> int:
            start.wait(5)
            return remove_session(tmp_path, session_id).calls

        def finish(start: threading.Barrier = start) -> int:
            start.wait(5)
            complete_removals(tmp_path)
            return 0

        with ThreadPoolExecutor(4) as pool:
            removals = [pool.submit(each) for each in (remove, remove, remove, finish)]
            assert sum(each.result(10) for each in removals) == 1
        complete_removals(tmp_path)
        assert list((tmp_path / "sessions").iterdir()) == []


def test_a_job_that_waited_does_not_make_the_folder_of_a_removed_session_again(tmp_path: Path):
    session, removed = recorded(tmp_path, days_ago=0), RemovedSessions(tmp_path)

    def write() -> None:
        (session / "a").mkdir(parents=True)

    def write_while_it_is_removed() -> None:
        assert removed.remove(session.name).calls == 1
        (session / uuid.uuid4().hex).mkdir(parents=True)

    removed.guard(session.name, write_while_it_is_removed)
    assert not session.exists()
    with pytest.raises(MediaError, match="was deleted"):
        removed.guard(session.name, write)
    assert not session.exists()


def test_a_session_that_another_remover_took_counts_and_no_other_goes_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sessions = [recorded(tmp_path, days_ago=days) for days in (9, 8, 7, 6)]
    look = retention.foreign_in

    def look_and_lose(path: Path) -> Path | None:
        # Between the measuring and the removal, a client deletes the session.
        remove_first()
        return look(path)

    def remove_first() -> None:
        monkeypatch.setattr(retention, "foreign_in", look)
        remove_session(tmp_path, sessions[0].name)

    monkeypatch.setattr(retention, "foreign_in", look_and_lose)
    report = clean(tmp_path, max_storage_gb=3.5e-3)
    assert (report.removed, report.kept) == ([], {})
    assert [each.exists() for each in sessions] == [False, True, True, True]
    assert 3e6 < report.bytes < 3.5e6


def test_a_failure_of_the_disk_does_not_end_the_daily_cleaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old, complete, calls = recorded(tmp_path, days_ago=31), complete_removals, list[Path]()

    def fail_once(folder: Path) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        complete(folder)

    monkeypatch.setattr(retention, "complete_removals", fail_once)
    # As at a server without bounds: only removals are completed.
    thread = RetentionThread(tmp_path, retention_days=None, max_storage_gb=None, every_s=0.01)
    old.rename(old.with_name(f".removed-{old.name}"))
    until_s = time.monotonic() + 5
    while list((tmp_path / "sessions").iterdir()) and time.monotonic() < until_s:
        time.sleep(0.01)
    thread.close()
    assert list((tmp_path / "sessions").iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of folders")
def test_one_process_cleans_a_folder_at_a_time(tmp_path: Path):
    old = recorded(tmp_path, days_ago=31)
    with only_one(tmp_path / "sessions"), pytest.raises(MediaError, match="another process works on it"):
        clean(tmp_path, retention_days=30)
    assert old.exists()
    assert len(clean(tmp_path, retention_days=30).removed) == 1


def test_the_recordings_of_a_session_that_is_a_link_are_left_and_named(tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    session = str(uuid.UUID(int=3))
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / session).symlink_to(elsewhere)
    with pytest.raises(MediaError, match="a link"):
        remove_session(tmp_path, session)
    assert elsewhere.is_dir()


def test_a_file_that_another_process_receives_is_left_alone_and_goes_an_hour_after_its_last_byte(
    tmp_path: Path,
):
    receiving, killed = (tmp_path / "sessions" / f"{UPLOADING}{name}" for name in ("a", "b"))
    for folder in (receiving, killed):
        folder.mkdir(parents=True)
        (folder / ".frontend_replay.webm").write_bytes(b"x")
    past_s = time.time() - UPLOADING_S - 1
    for each in (receiving, killed / ".frontend_replay.webm", killed):
        os.utime(each, (past_s, past_s))
    complete_removals(tmp_path)
    assert receiving.exists() and not killed.exists()
