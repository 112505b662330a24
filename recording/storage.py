"""Storage of the recordings of one deployment, for its operator: how much there is, and what retention does.

Input: requests of an operator's page, on any thread. Output: the newest figures, which are never waited for.
Every figure needs a look at every file, so that they are measured by a thread of their own, at most once in
``FRESH_S`` and only while someone asks. The same thread runs retention by hand, first without removing
anything; one job runs at a time. It is a daemon and holds no end of the process up. What fails is a sentence
in the figures.
"""

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from parley.core.errors import MediaError
from parley.recording.objects import RecordingBucket
from parley.recording.retention import DAY_S, GB, RetentionReport, clean, measured_sessions

# A look at a hundred thousand sessions takes minutes of a thread.
FRESH_S = 600.0
# Sessions that are named: what comes next, and those of a run.
MOST_NEXT, MOST_REMOVED = 5, 100


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Bounds of a deployment (``recording``).

    Attributes:
        retention_days: sessions that were last used earlier are removed; None: no age.
        max_storage_gb: most that stays; None: no bound.
    """

    retention_days: float | None = None
    max_storage_gb: float | None = None

    @property
    def removes(self) -> bool:
        """True where anything is ever removed by age or capacity."""
        return self.retention_days is not None or self.max_storage_gb is not None


@dataclass(frozen=True, slots=True)
class NextRemoval:
    """Session that retention removes next, if it is not used until then.

    Attributes:
        session_id: the session.
        bytes: size of its recordings.
        due_s: Unix time from which a run removes it.
        reason: "age" or "capacity".
    """

    session_id: str
    bytes: int
    due_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class StoredAmounts:
    """Recordings at one moment.

    Attributes:
        at_s: Unix time.
        sessions: number of sessions.
        calls: number of recorded calls.
        files: number of files.
        bytes: their size.
        pinned_sessions: sessions that stay whatever their age.
        pinned_bytes: their size.
        free_bytes: free space on the disk of the folder.
        disk_bytes: size of that disk.
        next: what retention removes next, the first one first.
    """

    at_s: float
    sessions: int
    calls: int
    files: int
    bytes: int
    pinned_sessions: int
    pinned_bytes: int
    free_bytes: int
    disk_bytes: int
    next: tuple[NextRemoval, ...]


@dataclass(frozen=True, slots=True)
class RetentionRun:
    """Run of retention that an operator has started.

    Attributes:
        at_s: Unix time of its end.
        dry_run: nothing was removed.
        report: its result; None where it failed.
        problem: why it failed; empty when it did not.
    """

    at_s: float
    dry_run: bool
    report: RetentionReport | None
    problem: str = ""


@dataclass(slots=True)
class StorageState:
    """Newest figures, each replaced as a whole.

    Attributes:
        job: what is under way: "measuring", "dry run" or "removing"; empty for nothing.
        amounts: newest measurement; None before the first.
        run: newest run of retention by hand; None before the first.
        problem: why the last measurement failed; empty when it did not.
    """

    job: str = ""
    amounts: StoredAmounts | None = None
    run: RetentionRun | None = None
    problem: str = ""


class RecordingStorage:
    """Storage of the recordings of a process. Any thread may use it.

    Args:
        folder: folder of the recordings.
        rule: of the deployment.
        bucket: to which they move; None: they stay.
        now_s: reads the clock of the files.
    """

    def __init__(
        self,
        folder: Path,
        rule: RetentionRule,
        *,
        bucket: RecordingBucket | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.rule = rule
        self._folder, self._bucket, self._now_s = folder, bucket, now_s
        self._state = StorageState()
        self._lock = threading.Lock()
        # Time of the last measurement, also of one that failed.
        self._measured_s: float | None = None

    def look(self) -> StorageState:
        """Return the newest figures, and have them measured again where they are old. Never blocks."""
        if self._measured_s is None or self._now_s() - self._measured_s >= FRESH_S:
            self._begin("measuring", self._measure)
        return self._state

    def start_retention(self, *, dry_run: bool) -> bool:
        """Start a run of retention; return False while another job is under way. Never blocks."""
        return self._begin("dry run" if dry_run else "removing", lambda: self._clean(dry_run=dry_run))

    def _begin(self, job: str, work: Callable[[], None]) -> bool:
        with self._lock:
            if self._state.job:
                return False
            self._state.job = job
        threading.Thread(target=self._do, args=(work,), name="storage", daemon=True).start()
        return True

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._state.job = ""

    def _measure(self) -> None:
        self._measured_s = self._now_s()
        try:
            self._state.amounts = measure(
                self._folder, self.rule, bucket=self._bucket, now_s=self._measured_s
            )
            self._state.problem = ""
        except (MediaError, OSError) as error:
            self._state.problem = str(error)
            logger.warning(f"the storage of recordings is not measured: {error}")

    def _clean(self, *, dry_run: bool) -> None:
        report, problem = None, ""
        try:
            report = clean(
                self._folder,
                retention_days=self.rule.retention_days,
                max_storage_gb=self.rule.max_storage_gb,
                dry_run=dry_run,
                now_s=self._now_s(),
                bucket=self._bucket,
            )
        except (MediaError, OSError) as error:
            problem = str(error)
            logger.warning(f"recordings are not cleaned up: {error}")
        self._state.run = RetentionRun(self._now_s(), dry_run, report, problem)
        if not dry_run:
            self._measure()


def measure(
    folder: Path, rule: RetentionRule, *, bucket: RecordingBucket | None = None, now_s: float
) -> StoredAmounts:
    """Return how much is stored, and what retention removes next. Blocks, and reads every file's size.

    Args:
        folder: folder of the recordings; it may not exist yet.
        rule: of the deployment.
        bucket: has sessions too; None: there is none.
        now_s: present time, as files have it.

    Raises:
        MediaError: the folder cannot be read.
        OSError: its disk cannot be read.
    """
    sessions = measured_sessions(folder, bucket)
    pinned = [each for each in sessions if each.is_pinned]
    held = {each.path.name for each in pinned}
    left_bytes = sum(each.bytes for each in sessions)
    bound = None if rule.max_storage_gb is None else rule.max_storage_gb * GB
    coming: list[NextRemoval] = []
    for session in sessions:
        if session.path.name in held or len(coming) == MOST_NEXT:
            continue
        if bound is not None and left_bytes > bound:
            coming.append(NextRemoval(session.path.name, session.bytes, now_s, "capacity"))
            left_bytes -= session.bytes
        elif rule.retention_days is not None:
            due_s = session.used_s + rule.retention_days * DAY_S
            coming.append(NextRemoval(session.path.name, session.bytes, due_s, "age"))
    disk = shutil.disk_usage(_existing(folder))
    return StoredAmounts(
        at_s=now_s,
        sessions=len(sessions),
        calls=sum(each.calls for each in sessions),
        files=sum(each.files for each in sessions),
        bytes=sum(each.bytes for each in sessions),
        pinned_sessions=len(pinned),
        pinned_bytes=sum(each.bytes for each in pinned),
        free_bytes=disk.free,
        disk_bytes=disk.total,
        next=tuple(coming),
    )


def _existing(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    folder = folder.resolve()
    return next(each for each in (folder, *folder.parents) if each.exists())
