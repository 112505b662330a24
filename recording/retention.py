"""Remove recordings: by age, by capacity, and those of a session that is deleted.

    python -m recording.retention --data-dir data --retention-days 30 --max-storage-gb 50 --dry-run

A session goes with all its calls, the least recently used one first. It was last used when a file of it was
written, or marked as used by a reader (``mark_used``). What stays in any case:

* a session with a file ``pinned`` in its folder,
* a session that was used within ``IN_USE_S``: its call may be on,
* a folder with something in it that no recording has, a link, and every name that is no session's. They
  are named in the result, and count for the capacity only as far as they are sessions.

A session that is being removed is renamed first (``.removed-...``), so that no reader finds half of it. A run
that was killed is completed by the next one. Everything here blocks.
"""

import argparse
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from loguru import logger

from parley.core.errors import MediaError
from parley.recording.folder import (
    META,
    PINNED,
    SESSIONS,
    foreign_in,
    is_folder,
    session_folder,
    session_folders,
)

IN_USE_S = 600
DAY_S = 86_400
GB = 1_000_000_000
_REMOVED = ".removed-"


@dataclass(frozen=True, slots=True)
class RemovedRecordings:
    """Recordings of one session that were removed, or would be.

    Attributes:
        session_id: the session.
        calls: number of its calls.
        files: number of files.
        bytes: their size.
        reason: why.
    """

    session_id: str
    calls: int
    files: int
    bytes: int
    reason: str


@dataclass
class RetentionReport:
    """Result of one run.

    Attributes:
        removed: sessions that were removed, in this order.
        kept: reasons for which sessions stay that should go, by session or name.
        bytes: size of what is left.
    """

    removed: list[RemovedRecordings] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Session:
    path: Path
    calls: int
    files: int
    bytes: int
    used_s: float

    def removed(self, reason: str) -> RemovedRecordings:
        return RemovedRecordings(self.path.name, self.calls, self.files, self.bytes, reason)


def mark_used(path: Path) -> None:
    """Mark the session of a call's folder as used now."""
    with suppress(OSError):
        os.utime(path / META)


def clean(
    folder: Path,
    *,
    retention_days: float | None = None,
    max_storage_gb: float | None = None,
    dry_run: bool = False,
    now_s: float | None = None,
) -> RetentionReport:
    """Remove sessions that are too old, then the least recently used until the rest fits.

    Args:
        folder: folder of the recordings, which has ``sessions``.
        retention_days: sessions that were last used earlier are removed; None: no age.
        max_storage_gb: most that stays; None: no bound.
        dry_run: remove nothing, and report what would be.
        now_s: present time, as files have it; None for the clock's.

    Raises:
        MediaError: the folder cannot be read.
    """
    now_s = time.time() if now_s is None else now_s
    report = RetentionReport()
    try:
        if not dry_run:
            _complete(folder)
        sessions = sorted((_measured(path) for path in session_folders(folder)), key=lambda each: each.used_s)
    except OSError as error:
        raise MediaError(f"{folder}: cannot be read: {error.strerror or error}") from error
    report.bytes = sum(each.bytes for each in sessions)
    bound = None if max_storage_gb is None else max_storage_gb * GB
    for session in sessions:
        age_days = (now_s - session.used_s) / DAY_S
        if retention_days is not None and age_days > retention_days:
            reason = f"last used {age_days:.1f} days ago"
        elif bound is not None and report.bytes > bound:
            reason = f"{report.bytes / GB:.2f} GB are stored"
        else:
            continue
        obstacle = _obstacle(session, now_s)
        if not obstacle and not dry_run:
            try:
                _remove(session.path)
            except OSError as error:
                obstacle = f"cannot be removed: {error.strerror or error}"
        if obstacle:
            report.kept[session.path.name] = obstacle
            continue
        report.bytes -= session.bytes
        report.removed.append(session.removed(reason))
    return report


def remove_session(folder: Path, session_id: str) -> RemovedRecordings:
    """Remove the recordings of a session that is deleted, also when they are pinned; return what it was.

    Raises:
        MediaError: not the id of a session, something foreign is in its folder, or it cannot be removed.
    """
    path = session_folder(folder, session_id)
    if not is_folder(path):
        return RemovedRecordings(session_id, 0, 0, 0, "deleted")
    try:
        found = foreign_in(path)
        if found is not None:
            raise MediaError(f"{found}: not a part of a recording; remove it by hand, then delete again")
        session = _measured(path)
        _remove(path)
    except OSError as error:
        raise MediaError(f"{path}: cannot be removed: {error.strerror or error}") from error
    return session.removed("deleted")


def _obstacle(session: _Session, now_s: float) -> str:
    """Return why a session may not be removed; empty when it may."""
    if now_s - session.used_s < IN_USE_S:
        return "in use: written or read within ten minutes"
    if (session.path / PINNED).exists():
        return "pinned"
    found = foreign_in(session.path)
    return "" if found is None else f"{found.name} is not a part of a recording"


def _measured(path: Path) -> _Session:
    files = size = calls = 0
    used_s = path.lstat().st_mtime
    for parent, folders, names in os.walk(path, followlinks=False):
        calls += parent == str(path) and len(folders)
        for name in names:
            with suppress(FileNotFoundError):
                found = os.lstat(os.path.join(parent, name))
                files, size, used_s = files + 1, size + found.st_size, max(used_s, found.st_mtime)
    return _Session(path, calls, files, size, used_s)


def _remove(path: Path) -> None:
    renamed = path.with_name(f"{_REMOVED}{path.name}")
    if is_folder(renamed):
        shutil.rmtree(renamed)
    os.rename(path, renamed)
    shutil.rmtree(renamed)


def _complete(folder: Path) -> None:
    """Remove what a run that was killed has left."""
    root = folder / SESSIONS
    if is_folder(root):
        for left in root.glob(f"{_REMOVED}*"):
            if is_folder(left):
                shutil.rmtree(left)


class RetentionThread:
    """Thread that cleans a folder once a day until it is closed; a daemon, which holds no end up.

    Args:
        folder: see ``clean``.
        retention_days: see ``clean``.
        max_storage_gb: see ``clean``.
    """

    def __init__(self, folder: Path, *, retention_days: float | None, max_storage_gb: float | None) -> None:
        self._folder, self._days, self._gb = folder, retention_days, max_storage_gb
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the present run, which is not waited for."""
        self._over.set()

    def _run(self) -> None:
        while True:
            try:
                report = clean(self._folder, retention_days=self._days, max_storage_gb=self._gb)
            except MediaError as error:
                logger.warning(f"recordings are not cleaned up: {error}")
            else:
                for line in lines_of(report, dry_run=False):
                    logger.info(f"recordings: {line}")
            if self._over.wait(DAY_S):
                return


def lines_of(report: RetentionReport, *, dry_run: bool) -> list[str]:
    """Return a report as lines for people."""
    verb = "would remove" if dry_run else "removed"
    lines = [
        f"{verb} {each.session_id}: {each.calls} calls, {each.files} files, {each.bytes / 1e6:.1f} MB, "
        f"{each.reason}"
        for each in report.removed
    ]
    lines += [f"kept {name}: {reason}" for name, reason in report.kept.items()]
    return [*lines, f"{report.bytes / GB:.2f} GB are left"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Clean a folder by hand; return the exit status."""
    parser = argparse.ArgumentParser(description="Remove recordings by age and by capacity.")
    parser.add_argument("--data-dir", type=Path, required=True, help="recording.folder of the deployment")
    parser.add_argument("--retention-days", type=_positive, help="remove sessions last used earlier")
    parser.add_argument("--max-storage-gb", type=_positive, help="remove the least recently used over this")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    given = parser.parse_args(arguments)
    if given.retention_days is None and given.max_storage_gb is None:
        parser.error("give --retention-days, --max-storage-gb or both")
    if not is_folder(given.data_dir / SESSIONS):
        parser.error(f"{given.data_dir}: has no folder {SESSIONS}")
    try:
        report = clean(
            given.data_dir,
            retention_days=given.retention_days,
            max_storage_gb=given.max_storage_gb,
            dry_run=given.dry_run,
        )
    except MediaError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(lines_of(report, dry_run=given.dry_run)))
    return 0


def _positive(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("expected a number of at least 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
