"""The file with one line for each unit of a call."""

import os
from pathlib import Path

import pytest

from parley.core.errors import MediaError
from parley.evals.bench.duplex_jitter.reading import read_ticks
from parley.telemetry.ticks import TickLog


def written(path: Path, lines: int, **options: int) -> TickLog:
    log = TickLog(path, {"engine": "two_tier"}, **options)
    for number in range(lines):
        log.write({"slot": number})
    log.close()
    log.join(5)
    return log


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a" / "call.jsonl"
    written(path, 100)
    head, units = read_ticks(path)
    assert head["engine"] == "two_tier"
    assert [unit["slot"] for unit in units] == list(range(100))


def test_a_full_log_ends_at_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "call.jsonl"
    written(path, 1_000, limit_bytes=500)
    assert path.stat().st_size <= 500


def test_old_logs_are_deleted_and_nothing_else(tmp_path: Path) -> None:
    old, new, other = tmp_path / "old.ticks.jsonl", tmp_path / "new.ticks.jsonl", tmp_path / "old.jsonl"
    for path in (old, new, other):
        path.write_text("{}\n")
    for path in (old, other):
        os.utime(path, (0, 0))
    written(tmp_path / "call.ticks.jsonl", 1, keep_days=30)
    assert not old.exists() and new.exists() and other.exists()


def test_a_folder_that_cannot_be_written_costs_the_log_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    written(tmp_path / "file" / "call.jsonl", 3)


def test_a_line_that_a_crash_cut_is_left_out_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "call.jsonl"
    path.write_text('{"kind":"head"}\n{"slot":0}\n{"slo')
    _, units = read_ticks(path)
    assert list(units) == [{"slot": 0}]
    path.write_text('{"kind":"head"}\n{"slo\n{"slot":1}\n')
    _, units = read_ticks(path)
    with pytest.raises(MediaError):
        list(units)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError):
        read_ticks(tmp_path / "missing.jsonl")
    (tmp_path / "other.jsonl").write_text("[]\n")
    with pytest.raises(MediaError):
        read_ticks(tmp_path / "other.jsonl")
