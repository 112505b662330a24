"""Storage of this server, for the operator: recordings, the disk, uploads, the session store.

    GET  /api/admin/storage              the newest figures; they are measured in the background
    POST /api/admin/storage/retention    {dry_run}: run retention now; the result is in the figures

A look at every recording takes long, so that no request waits for one (``recording.storage``). The size of
the database is read at most once in ``STORE_FRESH_S``. The run of retention is the daily one, by the bounds
of the deployment; a dry run names what would be removed. A run that removes is recorded in the audit log.
"""

import asyncio
from datetime import UTC, datetime

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict

from parley.core.errors import StoreError
from parley.recording.retention import RemovedRecordings
from parley.recording.storage import (
    MOST_REMOVED,
    NextRemoval,
    RecordingStorage,
    RetentionRun,
    StoredAmounts,
)
from parley.recording.uploads import UploadCounts
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.http.requests import check_origin, client_of
from parley.serving.gateway.recording_routes import SessionRecordings
from parley.serving.gateway.settings import ServerSettings
from parley.session_store.rows import SHOWN_CHARS
from parley.session_store.size import stored_bytes
from parley.session_store.store import SessionStore

PATH = "/api/admin/storage"
STORE_FRESH_S = 30.0


class NextRemovalView(BaseModel):
    """Session that retention removes next, by the beginning of its id."""

    session_id: str
    bytes: int
    due_at: datetime
    reason: str


class AmountsView(BaseModel):
    """Recordings at one moment; ``StoredAmounts`` describes the fields."""

    measured_at: datetime
    sessions: int
    calls: int
    files: int
    bytes: int
    pinned_sessions: int
    pinned_bytes: int
    free_bytes: int
    disk_bytes: int
    next: list[NextRemovalView]


class RemovedView(BaseModel):
    """Session that a run has removed, or would remove, by the beginning of its id."""

    session_id: str
    calls: int
    bytes: int
    reason: str


class RunView(BaseModel):
    """Newest run of retention by hand.

    Attributes:
        at: its end.
        dry_run: nothing was removed.
        sessions: number of sessions that were removed, or would be.
        bytes: their size.
        removed: the first of them.
        kept: number of sessions that should go and stay.
        problem: why it failed; empty when it did not.
    """

    at: datetime
    dry_run: bool
    sessions: int
    bytes: int
    removed: list[RemovedView]
    kept: int
    problem: str


class UploadsView(BaseModel):
    """Uploads since the start of the process; ``UploadCounts`` describes the fields."""

    moved: int
    failures: int
    waiting: int


class StorageView(BaseModel):
    """Storage of this server.

    Attributes:
        retention_days: bound of the deployment; null: none.
        max_storage_gb: bound of the deployment; null: none.
        job: "measuring", "dry run" or "removing"; empty for nothing.
        problem: why the last measurement failed; empty when it did not.
        recordings: newest figures; null before the first.
        run: newest run of retention by hand; null before the first.
        uploads: to the bucket; null without one.
        store_bytes: size of the database of the sessions; null while it does not answer.
    """

    retention_days: float | None
    max_storage_gb: float | None
    job: str
    problem: str
    recordings: AmountsView | None
    run: RunView | None
    uploads: UploadsView | None
    store_bytes: int | None


class RetentionRequest(BaseModel):
    """Body of a run of retention."""

    model_config = ConfigDict(extra="forbid")

    dry_run: bool


class RetentionStarted(BaseModel):
    """Job that has begun, as in the figures."""

    job: str


class StoreSize:
    """Size of the database, read at most once in ``STORE_FRESH_S``.

    Args:
        store: of sessions; None: there is none.
    """

    def __init__(self, store: SessionStore | None) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._bytes: int | None = None
        self._read_s: float | None = None

    async def bytes(self) -> int | None:
        """Return the size; None without a store, and while it does not answer."""
        if self._store is None:
            return None
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if self._read_s is None or now_s - self._read_s >= STORE_FRESH_S:
                self._read_s = now_s
                try:
                    self._bytes = await stored_bytes(self._store)
                except StoreError:
                    self._bytes = None
            return self._bytes


def storage_api(
    recordings: SessionRecordings | None,
    store: SessionStore | None,
    operators: AdminAuth,
    audit: AuditLog,
    settings: ServerSettings,
) -> APIRouter:
    """Return the routes.

    Args:
        recordings: of the process; None: it has none.
        store: of sessions, if there is one.
        operators: checks that a request is an operator's.
        audit: records runs that remove.
        settings: of the server.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])
    size = StoreSize(store)
    storage = None if recordings is None else recordings.storage

    @router.get(PATH)
    async def shown() -> StorageView:
        """Return the newest figures about storage."""
        uploads = None if recordings is None else recordings.uploads
        return _view(storage, uploads, await size.bytes())

    @router.post(f"{PATH}/retention", status_code=202)
    async def run(body: RetentionRequest, request: Request) -> RetentionStarted:
        """Run the retention of recordings now, or find out what it would remove."""
        check_origin(request, allowed=settings.allowed_origins)
        if storage is None or not storage.rule.removes:
            raise HTTPException(
                409, "recordings are not removed here: set recording.retention_days or max_storage_gb"
            )
        if not storage.start_retention(dry_run=body.dry_run):
            raise HTTPException(409, "recordings are being measured or cleaned, try again in a moment")
        if not body.dry_run:
            address = client_of(request, trusted_proxies=settings.trusted_proxies)
            audit.record("recordings.cleaned", address=address, by="operator")
        return RetentionStarted(job="dry run" if body.dry_run else "removing")

    return router


def _view(
    storage: RecordingStorage | None, uploads: UploadCounts | None, store_bytes: int | None
) -> StorageView:
    state = None if storage is None else storage.look()
    rule = None if storage is None else storage.rule
    return StorageView(
        retention_days=None if rule is None else rule.retention_days,
        max_storage_gb=None if rule is None else rule.max_storage_gb,
        job="" if state is None else state.job,
        problem="" if state is None else state.problem,
        recordings=None if state is None or state.amounts is None else _amounts(state.amounts),
        run=None if state is None or state.run is None else _run(state.run),
        uploads=None
        if uploads is None
        else UploadsView(moved=uploads.moved, failures=uploads.failures, waiting=uploads.waiting),
        store_bytes=store_bytes,
    )


def _amounts(amounts: StoredAmounts) -> AmountsView:
    return AmountsView(
        measured_at=_at(amounts.at_s),
        sessions=amounts.sessions,
        calls=amounts.calls,
        files=amounts.files,
        bytes=amounts.bytes,
        pinned_sessions=amounts.pinned_sessions,
        pinned_bytes=amounts.pinned_bytes,
        free_bytes=amounts.free_bytes,
        disk_bytes=amounts.disk_bytes,
        next=[_next(each) for each in amounts.next],
    )


def _next(coming: NextRemoval) -> NextRemovalView:
    return NextRemovalView(
        session_id=coming.session_id[:SHOWN_CHARS],
        bytes=coming.bytes,
        due_at=_at(coming.due_s),
        reason=coming.reason,
    )


def _run(run: RetentionRun) -> RunView:
    removed = [] if run.report is None else run.report.removed
    return RunView(
        at=_at(run.at_s),
        dry_run=run.dry_run,
        sessions=len(removed),
        bytes=sum(each.bytes for each in removed),
        removed=[_removed(each) for each in removed[:MOST_REMOVED]],
        kept=0 if run.report is None else len(run.report.kept),
        problem=run.problem,
    )


def _removed(removed: RemovedRecordings) -> RemovedView:
    return RemovedView(
        session_id=removed.session_id[:SHOWN_CHARS],
        calls=removed.calls,
        bytes=removed.bytes,
        reason=removed.reason,
    )


def _at(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
