"""Figures about stored recordings, and retention that is run by hand."""

import threading
import time
from pathlib import Path

import pytest

from parley.recording.retention import GB
from parley.recording.storage import FRESH_S, MOST_NEXT, RecordingStorage, RetentionRule, measure
from tests.unit.recording.test_retention import DAY_S, SIZE, recorded

DEADLINE_S = 10.0


def settled(storage: RecordingStorage) -> None:
    """Wait until no job is under way."""
    for thread in threading.enumerate():
        if thread.name == "storage":
            thread.join(DEADLINE_S)
    assert storage.look().job in ("", "measuring")


def test_what_retention_removes_next_is_named_with_its_time_and_pinned_ones_are_not(tmp_path: Path):
    pinned, first, second = (recorded(tmp_path, days_ago=days) for days in (29, 28, 3))
    (pinned / "pinned").touch()
    now_s = time.time()
    amounts = measure(tmp_path, RetentionRule(retention_days=30), now_s=now_s)
    assert (amounts.sessions, amounts.calls, amounts.files) == (3, 3, 7)
    assert amounts.bytes > 3 * SIZE
    assert (amounts.pinned_sessions, amounts.pinned_bytes > SIZE) == (1, True)
    assert 0 < amounts.free_bytes < amounts.disk_bytes
    assert [(each.session_id, each.reason) for each in amounts.next] == [
        (first.name, "age"),
        (second.name, "age"),
    ]
    assert [round((each.due_s - now_s) / DAY_S) for each in amounts.next] == [2, 27]


def test_what_is_over_the_capacity_goes_with_the_next_run(tmp_path: Path):
    oldest, _, _ = (recorded(tmp_path, days_ago=days) for days in (5, 4, 3))
    rule = RetentionRule(max_storage_gb=2.5 * SIZE / GB)
    amounts = measure(tmp_path, rule, now_s=time.time())
    assert [(each.session_id, each.reason) for each in amounts.next] == [(oldest.name, "capacity")]
    assert measure(tmp_path, RetentionRule(), now_s=time.time()).next == ()


def test_only_the_first_of_many_are_named(tmp_path: Path):
    for days in range(MOST_NEXT + 2):
        recorded(tmp_path, days_ago=days + 1, size=1)
    amounts = measure(tmp_path, RetentionRule(retention_days=30), now_s=time.time())
    assert len(amounts.next) == MOST_NEXT and amounts.sessions == MOST_NEXT + 2


def test_figures_are_measured_in_the_background_and_again_when_they_are_old(tmp_path: Path):
    recorded(tmp_path, days_ago=1)
    now_s, released = time.time(), threading.Event()

    def clock_s() -> float:
        # The thread that measures reads the clock first: it waits until the first figures were looked at.
        if threading.current_thread().name == "storage":
            assert released.wait(DEADLINE_S)
        return now_s

    storage = RecordingStorage(tmp_path, RetentionRule(), now_s=clock_s)
    assert storage.look().amounts is None
    released.set()
    settled(storage)
    assert (amounts := storage.look().amounts) is not None and amounts.sessions == 1
    recorded(tmp_path, days_ago=1)
    now_s += FRESH_S - 1
    settled(storage)
    assert storage.look().amounts is amounts
    now_s += 2
    storage.look()
    settled(storage)
    assert (amounts := storage.look().amounts) is not None and amounts.sessions == 2


def test_a_dry_run_removes_nothing_and_the_run_after_it_does(tmp_path: Path):
    old, young = recorded(tmp_path, days_ago=31), recorded(tmp_path, days_ago=1)
    storage = RecordingStorage(tmp_path, RetentionRule(retention_days=30))
    storage.look()
    settled(storage)

    def run(*, dry_run: bool) -> list[str]:
        assert storage.start_retention(dry_run=dry_run)
        settled(storage)
        made = storage.look().run
        assert made is not None and made.report is not None and made.dry_run is dry_run
        return [each.session_id for each in made.report.removed]

    assert run(dry_run=True) == [old.name] and old.exists()
    assert run(dry_run=False) == [old.name] and not old.exists() and young.exists()
    assert (amounts := storage.look().amounts) is not None and amounts.sessions == 1


def test_one_job_runs_at_a_time(tmp_path: Path):
    held, released = threading.Event(), threading.Event()

    def now_s() -> float:
        # The thread of the job reads the clock first.
        if threading.current_thread().name == "storage":
            held.set()
            released.wait(DEADLINE_S)
        return time.time()

    storage = RecordingStorage(tmp_path, RetentionRule(retention_days=30), now_s=now_s)
    assert storage.start_retention(dry_run=True) and held.wait(DEADLINE_S)
    assert storage.look().job == "dry run"
    assert not storage.start_retention(dry_run=False)
    released.set()
    settled(storage)


def test_a_folder_that_cannot_be_read_is_a_sentence_in_the_figures(tmp_path: Path):
    (session,) = (recorded(tmp_path, days_ago=1).parent,)
    session.chmod(0)
    try:
        storage = RecordingStorage(tmp_path, RetentionRule(retention_days=1))
        storage.look()
        settled(storage)
        state = storage.look()
    finally:
        session.chmod(0o700)
    if state.amounts is not None:
        pytest.skip("this user reads every folder")
    assert "cannot be read" in state.problem
