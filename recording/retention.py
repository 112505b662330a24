"""Remove recordings: by age, by capacity, and those of a session that is deleted.

    python -m recording.retention --data-dir data --retention-days 30 --max-storage-gb 50 --dry-run

A session goes with all its calls, the least recently used one first. It was last used when a file of it was
written, or marked as used by a reader (``mark_used``). What stays in any case:

* a session with a file ``pinned`` in its folder (``pins``),
* a session that was used within ``IN_USE_S``: its call may be on,
* a folder with something in it that no recording has, a link, and every name that is no session's. They
  are named in the result, and count for the capacity only as far as they are sessions.

A session that is being removed is renamed first (``.removed-SESSION-...``, another name each time), so that
no reader finds half of it. Several removers may meet: one renames, and to the others the session is gone. A
run that was killed is completed by the next one. A call may be on when its session is removed:
``RemovedSessions`` has the names, and what writes for the call asks it. Everything here blocks.
"""

import argparse
import os
import shutil
import sys
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loguru import logger

from parley.core.errors import MediaError
from parley.recording.call_files import is_folder
from parley.recording.folder import (
    META,
    PINNED,
    SESSIONS,
    foreign_in,
    is_session,
    session_folder,
    session_folders,
)
from parley.recording.objects import RecordingBucket, StoredSession
from parley.runtime.object_store import ObjectStoreError

IN_USE_S = 600
DAY_S = 86_400
GB = 1_000_000_000
if sys.platform != "win32":
    import fcntl

# Beginning of the name of what is being removed; a run that is killed leaves it, and the next one removes it.
REMOVED = ".removed-"
# The same of a file that a client uploads to a call in a bucket. Another process must not take it for what a
# killed run has left: it is left alone until its newest file is older than any upload takes, also that to S3.
UPLOADING, UPLOADING_S = f"{REMOVED}upload-", 3_600.0
# File that names a deleted session whose objects may still be in the bucket.
_DELETED = ".deleted-"
# Removed sessions that a process remembers: more than the calls that may still be on.
MOST_REMEMBERED = 10_000


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
class MeasuredSession:
    """Recordings of one session, of the folder and of a bucket.

    Attributes:
        path: its folder, which may not exist where all is in the bucket.
        calls: number of its calls.
        files: number of files.
        bytes: their size.
        used_s: when it was last used, as files have it.
        objects: what of it is in the bucket; None: nothing.
    """

    path: Path
    calls: int
    files: int
    bytes: int
    used_s: float
    objects: StoredSession | None = None

    @property
    def is_pinned(self) -> bool:
        """True when it stays whatever its age. Looks at the disk."""
        return (self.path / PINNED).exists() or (self.objects is not None and self.objects.is_pinned)

    def with_objects(self, objects: StoredSession) -> "MeasuredSession":
        """Return the session together with what of it is in a bucket."""
        return replace(
            self,
            calls=self.calls + len(objects.calls),
            files=self.files + objects.files,
            bytes=self.bytes + objects.bytes,
            used_s=max(self.used_s, objects.written_s),
            objects=objects,
        )

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
    bucket: RecordingBucket | None = None,
) -> RetentionReport:
    """Remove sessions that are too old, then the least recently used until the rest fits.

    Args:
        folder: folder of the recordings, which has ``sessions``.
        retention_days: sessions that were last used earlier are removed; None: no age.
        max_storage_gb: most that stays; None: no bound.
        dry_run: remove nothing, and report what would be.
        now_s: present time, as files have it; None for the clock's.
        bucket: has sessions too, which were last used when they were uploaded; one that does not answer is
            left as it is. None: there is none.

    Raises:
        MediaError: the folder cannot be read, or another process is cleaning it.
    """
    now_s = time.time() if now_s is None else now_s
    if dry_run or not is_folder(folder / SESSIONS):
        return _clean(folder, retention_days, max_storage_gb, now_s, bucket, dry_run=dry_run)
    with only_one(folder / SESSIONS):
        return _clean(folder, retention_days, max_storage_gb, now_s, bucket, dry_run=False)


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Keep other processes, and other threads of this one, from doing the same work in a folder.

    The end of a process ends it. It takes no file; on Windows it does nothing.

    Raises:
        MediaError: another one does it now, or there is no such folder.
    """
    if sys.platform == "win32":
        yield
        return
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise MediaError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise MediaError(f"{path}: another process works on it; try again when it has ended") from error
        except OSError as error:
            # A file system without locks, as some of networks are.
            logger.debug(f"{path}: cannot be locked: {error.strerror}")
        yield
    finally:
        os.close(handle)


def _clean(
    folder: Path,
    retention_days: float | None,
    max_storage_gb: float | None,
    now_s: float,
    bucket: RecordingBucket | None,
    *,
    dry_run: bool,
) -> RetentionReport:
    report = RetentionReport()
    try:
        if not dry_run:
            complete_removals(folder)
    except OSError as error:
        raise MediaError(f"{folder}: cannot be read: {error.strerror or error}") from error
    sessions = measured_sessions(folder, bucket)
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
        try:
            obstacle = _obstacle(session, now_s, bucket)
            is_mine = not obstacle and (dry_run or _remove_all(session, bucket))
        except OSError as error:
            obstacle, is_mine = f"cannot be removed: {error.strerror or error}", False
        except ObjectStoreError as error:
            obstacle, is_mine = f"cannot be removed: {error}", False
        if not is_mine and session.objects is None and not is_folder(session.path):
            # Another remover was faster: its bytes are gone too.
            report.bytes -= session.bytes
        elif obstacle:
            report.kept[session.path.name] = obstacle
        elif is_mine:
            report.bytes -= session.bytes
            report.removed.append(session.removed(reason))
    return report


def measured_sessions(folder: Path, bucket: RecordingBucket | None = None) -> list[MeasuredSession]:
    """Return the recordings of all sessions, the least recently used first. Reads every file's size.

    Raises:
        MediaError: the folder cannot be read.
    """
    try:
        found = [_measured_or_gone(path) for path in session_folders(folder)]
    except OSError as error:
        raise MediaError(f"{folder}: cannot be read: {error.strerror or error}") from error
    stored = {} if bucket is None else _stored(bucket)
    joined = _joined(folder, [each for each in found if each is not None], stored)
    return sorted(joined, key=lambda each: each.used_s)


def _stored(bucket: RecordingBucket) -> dict[str, StoredSession]:
    try:
        return bucket.sessions()
    except ObjectStoreError as error:
        logger.warning(f"recordings in the bucket are not cleaned up: {error}")
        return {}


def _joined(
    folder: Path, found: list[MeasuredSession], stored: dict[str, StoredSession]
) -> Iterator[MeasuredSession]:
    """Yield the sessions of the folder and of the bucket."""
    here = {each.path.name: each for each in found}
    for session_id in here.keys() | stored.keys():
        session = here.get(session_id) or MeasuredSession(session_folder(folder, session_id), 0, 0, 0, 0.0)
        objects = stored.get(session_id)
        yield session if objects is None else session.with_objects(objects)


def _remove_all(session: MeasuredSession, bucket: RecordingBucket | None) -> bool:
    """Remove a session from the bucket and from the folder; return False when another was faster."""
    is_mine = False
    if bucket is not None and session.objects is not None:
        bucket.remove(session.path.name)
        is_mine = True
    return _remove(session.path) or is_mine


def remove_session(folder: Path, session_id: str) -> RemovedRecordings:
    """Remove the recordings of a session that is deleted, also when they are pinned; return what it was.

    Raises:
        MediaError: not the id of a session, something foreign is in its folder, or it cannot be removed.
    """
    path = session_folder(folder, session_id)
    nothing = RemovedRecordings(session_id, 0, 0, 0, "deleted")
    if path.is_symlink():
        raise MediaError(f"{path}: a link, which is neither read nor removed; remove it by hand")
    if not is_folder(path):
        return nothing
    try:
        found = _foreign_in(path)
        if found is not None:
            raise MediaError(f"{found}: not a part of a recording; remove it by hand, then delete again")
        session = _measured(path)
        return session.removed("deleted") if _remove(path) else nothing
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not is_folder(path):
            return nothing  # another remover was faster
        raise MediaError(f"{path}: cannot be removed: {error.strerror or error}") from error


class RemovedSessions:
    """Sessions of one folder whose recordings were removed; nothing is written for their calls any more.

    Any thread may use it. It remembers the last ``MOST_REMEMBERED``.

    Args:
        folder: folder of the recordings.
        bucket: which has recordings too; None: there is none.
    """

    def __init__(self, folder: Path, bucket: RecordingBucket | None = None) -> None:
        self._folder, self._bucket = folder, bucket
        self._lock = threading.Lock()
        self._removed: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, session_id: str) -> bool:
        with self._lock:
            return session_id in self._removed

    def add(self, session_id: str) -> None:
        """Remember a session that is to be removed."""
        with self._lock:
            self._removed[session_id] = None
            while len(self._removed) > MOST_REMEMBERED:
                self._removed.popitem(last=False)

    def remove(self, session_id: str) -> RemovedRecordings:
        """Remove the recordings of a session, and remember it first; see ``remove_session``.

        Where a bucket does not answer, its objects are removed later (``complete``).

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        self.add(session_id)
        if self._bucket is None:
            return remove_session(self._folder, session_id)
        noted = self.note(session_id)
        here = remove_session(self._folder, session_id)
        there = self._bucket.remove(session_id)
        with suppress(OSError):
            noted.unlink()
        calls, files = here.calls + len(there.calls), here.files + there.files
        return RemovedRecordings(session_id, calls, files, here.bytes + there.bytes, "deleted")

    def note(self, session_id: str) -> Path:
        """Note on the disk that the objects of a session are to be removed; return the file.

        Raises:
            MediaError: not the id of a session, or the disk refuses.
        """
        path = session_folder(self._folder, session_id).with_name(f"{_DELETED}{session_id}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        except OSError as error:
            raise MediaError(f"{path}: cannot be written: {error.strerror or error}") from error
        return path

    def complete(self) -> None:
        """Remove the objects of deleted sessions that an earlier try has left.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        root = self._folder / SESSIONS
        if self._bucket is None or not is_folder(root):
            return
        for noted in sorted(root.glob(f"{_DELETED}*")):
            if is_session(session_id := noted.name.removeprefix(_DELETED)):
                self._bucket.remove(session_id)
            with suppress(OSError):
                noted.unlink()

    def guard(self, session_id: str, job: Callable[[], None]) -> None:
        """Run a job that writes for a call, unless its session is removed.

        A removal during the job may find half of what it writes. Either it is noted before the job's end, and
        the rest is removed here, or it comes after the job and takes everything.

        Raises:
            MediaError: the session is removed.
        """
        if session_id in self:
            raise MediaError("the session of the call was deleted")
        try:
            job()
        finally:
            if session_id in self:
                remove_session(self._folder, session_id)


def _obstacle(session: MeasuredSession, now_s: float, bucket: RecordingBucket | None) -> str:
    """Return why a session may not be removed; empty when it may.

    Raises:
        ObjectStoreError: the bucket does not answer.
    """
    if now_s - session.used_s < IN_USE_S:
        return "in use: written or read within ten minutes"
    if session.is_pinned or _is_pinned_now(session, bucket):
        return "pinned"
    if not is_folder(session.path):
        return ""
    found = _foreign_in(session.path)
    return "" if found is None else f"{found.name} is not a part of a recording"


def _is_pinned_now(session: MeasuredSession, bucket: RecordingBucket | None) -> bool:
    """Return whether a session in a bucket is pinned there: a run takes long, and began with a list."""
    if bucket is None or session.objects is None:
        return False
    return bucket.sessions(session.path.name).get(session.path.name, StoredSession()).is_pinned


def _foreign_in(path: Path) -> Path | None:
    """Return something foreign in the folder of a session, unless it has been renamed meanwhile."""
    found = foreign_in(path)
    return found if found is not None and os.path.lexists(found) else None


def _measured(path: Path) -> MeasuredSession:
    files = size = calls = 0
    used_s = path.lstat().st_mtime
    for parent, folders, names in os.walk(path, followlinks=False):
        calls += parent == str(path) and len(folders)
        for name in names:
            with suppress(FileNotFoundError):
                found = os.lstat(os.path.join(parent, name))
                files, size, used_s = files + 1, size + found.st_size, max(used_s, found.st_mtime)
    return MeasuredSession(path, calls, files, size, used_s)


def _measured_or_gone(path: Path) -> MeasuredSession | None:
    with suppress(FileNotFoundError):
        return _measured(path)
    return None


def _remove(path: Path) -> bool:
    """Remove a session; return False when another remover was faster."""
    renamed = path.with_name(f"{REMOVED}{path.name}-{uuid.uuid4().hex}")
    try:
        os.rename(path, renamed)
    except FileNotFoundError:
        return False
    _remove_tree(renamed)
    return True


def remove_call(path: Path, is_elsewhere: Callable[[Path], bool]) -> bool:
    """Remove the folder of one call, which is elsewhere; no reader finds half of it.

    Args:
        path: its folder.
        is_elsewhere: returns whether everything in the folder, under another name, is elsewhere. A file that
            was added at the last moment is not.

    Returns:
        False when the folder stays, because something in it is not elsewhere.

    Raises:
        OSError: the disk refuses.
    """
    renamed = _set_aside(path)
    if not is_elsewhere(renamed):
        os.rename(renamed, path)
        return False
    _remove_tree(renamed)
    return True


def discard_call(path: Path) -> None:
    """Remove the folder of one call whose caller refuses a recording; log what is left."""
    try:
        _remove_tree(_set_aside(path))
    except FileNotFoundError:
        # Nothing was written.
        return
    except OSError as error:
        logger.warning(f"a recording that its caller refuses is left, remove {path}: {error}")


def _set_aside(path: Path) -> Path:
    """Give the folder of a call a name under which no reader finds it; return that."""
    session = path.parent
    renamed = session.with_name(f"{REMOVED}{session.name}-{uuid.uuid4().hex}")
    os.rename(path, renamed)
    return renamed


def _remove_tree(path: Path) -> None:
    """Remove a folder; another one that removes it at the same time is no failure."""
    shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(_function: Any, _path: str, failure: tuple[type[BaseException], BaseException, Any]) -> None:
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


def complete_removals(folder: Path) -> None:
    """Remove what removals that were killed have left; what cannot be removed stays, and is logged."""
    root = folder / SESSIONS
    if not is_folder(root):
        return
    for left in root.glob(f"{REMOVED}*"):
        if is_folder(left) and not _is_uploading(left):
            try:
                _remove_tree(left)
            except OSError as error:
                logger.warning(f"{left}: cannot be removed: {error.strerror or error}")


def _is_uploading(left: Path) -> bool:
    found = _measured_or_gone(left) if left.name.startswith(UPLOADING) else None
    return found is not None and time.time() - found.used_s < UPLOADING_S


class RetentionThread:
    """Thread that cleans a folder once a day until it is closed; a daemon, which holds no end up.

    Without bounds it only completes removals that were killed.

    Args:
        folder: see ``clean``.
        retention_days: see ``clean``.
        max_storage_gb: see ``clean``.
        every_s: interval between two runs.
        bucket: see ``clean``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        retention_days: float | None,
        max_storage_gb: float | None,
        every_s: float = DAY_S,
        bucket: RecordingBucket | None = None,
    ) -> None:
        self._bucket = bucket
        self._folder, self._days, self._gb = folder, retention_days, max_storage_gb
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the present run, which is not waited for."""
        self._over.set()

    def _run(self) -> None:
        while True:
            try:
                self._clean()
            except (MediaError, OSError) as error:
                # The next one is in a day; the thread must live until then.
                logger.warning(f"recordings are not cleaned up: {error}")
            if self._over.wait(self._every_s):
                return

    def _clean(self) -> None:
        if self._days is None and self._gb is None:
            complete_removals(self._folder)
            return
        report = clean(self._folder, retention_days=self._days, max_storage_gb=self._gb, bucket=self._bucket)
        for line in lines_of(report, dry_run=False):
            logger.info(f"recordings: {line}")


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
