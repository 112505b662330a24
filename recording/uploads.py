"""Move recordings of finished calls from the folder to a bucket, by one thread of a process.

The folder is the queue: a call is there until all of its files are in the bucket, so that nothing is lost
when the process ends. A call is uploaded when it is over, and when its stereo file and film are made (or were
not made within ``MAKING_S``). Its ``meta.json`` is the last object, and after it the folder goes, as a whole:
a process that is killed in between uploads the same objects again, under the same names, and then removes it.
A file that changed meanwhile keeps the folder until the next look.

S3 slow, refusing or away: the look ends after ``MOST_FAILED`` failures, and the next one comes after a pause
that doubles up to ``MOST_PAUSE_S``. One call that fails keeps no other here. Calls and their recorders never
wait for this thread. A session that was deleted is not uploaded; what a failure left of it in the bucket is
removed by a later look.
"""

import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from parley.core.errors import MediaError
from parley.recording.call_files import is_file, is_folder, partial_name
from parley.recording.folder import (
    CLIENT_REPLAYS,
    FRAMES,
    MERGED,
    META,
    SESSIONS,
    TIMELINE,
    VIDEO,
    is_call,
    read_recording,
    session_folders,
)
from parley.recording.objects import AT_ONCE, RecordingBucket
from parley.recording.retention import IN_USE_S, RemovedSessions, only_one, remove_call
from parley.runtime.object_store import ObjectStoreError

LOOK_S = 30.0
FIRST_PAUSE_S, MOST_PAUSE_S = 2.0, 300.0
# After the end of a call: stereo files of other calls may be made first, and a film takes longer.
MAKING_S = 3_600.0
# Since the last piece of a recording that a client uploads; what a run that was killed has left is older.
RECEIVING_S = 60.0
# Calls that cannot be moved in one look, after which it ends.
MOST_FAILED = 3


@dataclass(slots=True)
class UploadCounts:
    """Uploads of a process since its start, for its metrics.

    Attributes:
        moved: recordings that moved to the bucket.
        failures: attempts that the bucket or the disk refused.
        waiting: complete recordings that the last look left in the folder.
    """

    moved: int = 0
    failures: int = 0
    waiting: int = 0


class UploadThread:
    """Thread that moves finished calls to a bucket until it is closed; a daemon, which holds no end up.

    Args:
        folder: of the recordings.
        bucket: to which they move.
        removed: sessions that were deleted.
        is_merged: stereo files and films are made, which are waited for.
        look_s: interval between two looks for finished calls.

    Attributes:
        counts: what it has done so far; read on other threads.
    """

    def __init__(
        self,
        folder: Path,
        bucket: RecordingBucket,
        removed: RemovedSessions,
        *,
        is_merged: bool,
        look_s: float = LOOK_S,
    ) -> None:
        self._folder, self._bucket, self._removed = folder, bucket, removed
        self._is_merged, self._look_s = is_merged, look_s
        self.counts = UploadCounts()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="uploads", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """End the thread after the files under way, within ``timeout_s``. Blocks.

        Returns:
            True when it ended.
        """
        self._over.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._over.is_set():
            try:
                self._look()
            except (MediaError, OSError) as error:
                pause_s = min(max(2 * pause_s, min(self._look_s, FIRST_PAUSE_S)), MOST_PAUSE_S)
                logger.warning(f"recordings stay here, and are uploaded in {pause_s:.0f} s or later: {error}")
                self._over.wait(pause_s)
                continue
            if pause_s:
                logger.info("recordings are uploaded again")
            pause_s = 0.0
            self._over.wait(self._look_s)

    def _look(self) -> None:
        self._removed.complete()
        failed: list[Exception] = []
        found = list(finished_calls(self._folder, is_merged=self._is_merged))
        self.counts.waiting = len(found)
        for path in found:
            if self._over.is_set():
                return
            if path.parent.name not in self._removed:
                try:
                    self._move(path)
                except (ObjectStoreError, OSError) as error:
                    # One call that cannot be read, or that S3 refuses, keeps no other here.
                    failed.append(error)
                    self.counts.failures += 1
                    if len(failed) == MOST_FAILED:
                        break
        if failed:
            raise failed[0]
        for session in session_folders(self._folder):
            # Of sessions whose calls have moved; one that is not empty stays.
            with suppress(OSError):
                if time.time() - session.stat().st_mtime > IN_USE_S:
                    session.rmdir()

    def _move(self, path: Path) -> None:
        session_id, call_id = path.parent.name, path.name
        try:
            with only_one(path):
                uploaded = _listed(path)
                # In their order: by its time the latest of them is found again (``library``).
                replays = sorted(
                    uploaded.keys() & set(CLIENT_REPLAYS.values()), key=lambda name: uploaded[name][1]
                )
                self._upload(path, uploaded.keys() - {*replays, META}, [*replays, META])
                if self._over.is_set():
                    return
                if not is_folder(path) or session_id in self._removed:
                    # Deleted meanwhile, maybe by another process.
                    self._bucket.remove(session_id, call_id)
                elif remove_call(path, lambda folder: _is_all(folder, uploaded)):
                    self.counts.moved += 1
                    self.counts.waiting -= 1
        except ObjectStoreError:
            if not is_folder(path):
                # Deleted meanwhile: some of it may be in the bucket.
                self._removed.note(session_id)
            raise
        except (MediaError, FileNotFoundError) as error:
            # Being merged, or removed.
            logger.debug(f"a recording is not uploaded now: {error}")

    def _upload(self, path: Path, names: Collection[str], last: Sequence[str]) -> None:
        """Upload files, the last ones one by one after all others; end early when the thread is to end."""
        waiting, failures = deque(names), list[Exception]()
        # Daemons: a file that S3 takes slowly does not hold the end of the process.
        threads = [
            threading.Thread(target=self._put_each, args=(path, waiting, failures), daemon=True)
            for _ in range(min(AT_ONCE, len(waiting)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        for name in last:
            self._put(path, name)

    def _put_each(self, path: Path, waiting: deque[str], failures: list[Exception]) -> None:
        with suppress(IndexError):
            while not failures:
                name = waiting.popleft()
                try:
                    self._put(path, name)
                except (MediaError, OSError) as error:
                    failures.append(error)

    def _put(self, path: Path, name: str) -> None:
        if not self._over.is_set():
            self._bucket.put(f"{SESSIONS}/{path.parent.name}/{path.name}/{name}", path / name)


def finished_calls(folder: Path, *, is_merged: bool) -> Iterator[Path]:
    """Yield the folders of calls that are over and complete; ``is_merged``: with what is made of them."""
    for session in session_folders(folder):
        for path in sorted(session.iterdir()):
            with suppress(FileNotFoundError):
                if is_call(path.name) and is_folder(path) and is_file(path / META):
                    idle_s = time.time() - _written_s(path)
                    if is_receiving(path):
                        continue
                    if _is_over(path, idle_s) and (not is_merged or idle_s > MAKING_S or _is_made(path)):
                        yield path


def is_receiving(path: Path) -> bool:
    """Return whether a client uploads its own recording of a call at present."""
    partial = (partial_name(path / name) for name in CLIENT_REPLAYS.values())
    return any(is_file(each) and time.time() - each.stat().st_mtime < RECEIVING_S for each in partial)


def _is_over(path: Path, idle_s: float) -> bool:
    if idle_s > IN_USE_S:
        return True
    with suppress(MediaError):
        return bool(read_recording(path).timeline().get("is_over"))
    return False


def _is_made(path: Path) -> bool:
    has_pictures = is_folder(path / FRAMES) and any((path / FRAMES).iterdir())
    return is_file(path / MERGED) and (is_file(path / VIDEO) or not has_pictures)


def _written_s(path: Path) -> float:
    """Return when a call was last written; its ``meta.json`` has the time of its last use."""
    timeline = path / TIMELINE
    return (timeline if is_file(timeline) else path).stat().st_mtime


def _is_all(path: Path, uploaded: dict[str, tuple[int, int]]) -> bool:
    """Return whether a call has no other files than those, and gets none at present."""
    return _listed(path) == uploaded and not is_receiving(path)


def _listed(path: Path) -> dict[str, tuple[int, int]]:
    """Return the files of a call with their sizes and times; temporary files are left out."""
    files = {}
    for each in path.rglob("[!.]*"):
        if is_file(each):
            status = each.stat()
            written = 0 if each.name == META else status.st_mtime_ns
            files[each.relative_to(path).as_posix()] = status.st_size, written
    return files
