"""Record the calls of one process, where the deployment enables it (``recording``).

``CallRecordings`` owns the threads, ``recorded`` the recorder and its task. A recording that cannot begin is
logged, and the call goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from loguru import logger

from parley.core.call_events import RecordingAnnounced, RecordingConsentChanged
from parley.core.errors import MediaError, UnknownSessionError
from parley.core.privacy import PrivacySettings
from parley.pipelines.announcements import when_heard
from parley.pipelines.call import Call, SocketClient
from parley.recording.at_rest import RecordingKeys, check_encryption
from parley.recording.call_files import is_folder
from parley.recording.disk import RecordingDisk
from parley.recording.folder import SESSIONS
from parley.recording.held_segments import RecordedRedaction
from parley.recording.objects import RecordingBucket, check_bucket
from parley.recording.recorder import CallRecorder, RecordingSource, queue_unmerged
from parley.recording.retention import RemovedRecordings, RemovedSessions, RetentionThread
from parley.recording.settings import RecordingSettings
from parley.recording.storage import RecordingStorage, RetentionRule
from parley.recording.uploads import UploadCounts, UploadThread

# Stereo WAVs that wait to be made; one is the path of a folder.
MOST_MERGES = 1_000
# Longest wait for the disk when the process ends, for each of the two threads.
SHUTDOWN_S = 5.0
# Deletions that may wait for a bucket at a time.
REMOVERS = 2
_US_PER_MS = 1_000


class CallRecordings:
    """Recordings of the calls of one process.

    Args:
        settings: of the deployment.
        deployment: name of the deployment.
        privacy: what is redacted; None: nothing.

    Attributes:
        storage: how much there is, and what retention does.

    Raises:
        ConfigError: see ``check_recording``.
    """

    def __init__(
        self, settings: RecordingSettings, deployment: str, privacy: PrivacySettings | None = None
    ) -> None:
        check_recording(settings)
        self._settings, self._deployment = settings, deployment
        self._redaction: RecordedRedaction | None = None
        if privacy is not None and privacy.redact:
            self._redaction = RecordedRedaction(tuple(kind.value for kind in privacy.redact), privacy.audio)
        self._disk = RecordingDisk("recording")
        # Apart from the segments, which must not wait for the WAV of a long call.
        self._merging = RecordingDisk("merging", most_jobs=MOST_MERGES)
        self._bucket = None if settings.s3 is None else RecordingBucket(settings.s3)
        self._removed = RemovedSessions(settings.folder, self._bucket)
        # A bucket that answers nothing keeps threads of its own, which no call waits for.
        self._removing = None if self._bucket is None else ThreadPoolExecutor(REMOVERS, "removals")
        if settings.enabled and settings.merged:
            job = partial(queue_unmerged, self._merging, settings.folder, self._removed, settings.min_free_gb)
            self._merging.put(job)
        self._retention: RetentionThread | None = None
        if settings.enabled or is_folder(settings.folder / SESSIONS):
            # A server that does not record keeps what is there, but completes removals.
            days = settings.retention_days if settings.enabled else None
            most_gb = settings.max_storage_gb if settings.enabled else None
            self._retention = RetentionThread(
                settings.folder, retention_days=days, max_storage_gb=most_gb, bucket=self._bucket
            )
        rule = RetentionRule(settings.retention_days, settings.max_storage_gb)
        self.storage = RecordingStorage(
            settings.folder, rule if settings.enabled else RetentionRule(), bucket=self._bucket
        )
        self._uploads: UploadThread | None = None
        if self._bucket is not None:
            is_merged = settings.enabled and settings.merged
            self._uploads = UploadThread(settings.folder, self._bucket, self._removed, is_merged=is_merged)

    @property
    def folder(self) -> Path:
        """Folder that contains them."""
        return self._settings.folder

    @property
    def settings(self) -> RecordingSettings:
        """Settings of the deployment."""
        return self._settings

    @property
    def bucket(self) -> RecordingBucket | None:
        """Bucket to which finished ones move; None for none."""
        return self._bucket

    @property
    def uploads(self) -> UploadCounts | None:
        """Recordings that have moved to the bucket, and those that wait; None without one."""
        return None if self._uploads is None else self._uploads.counts

    def announcement_of(self, call: Call) -> str:
        """Return the phrase that is spoken at the beginning of a call; empty for none.

        A caller who has heard it to its end over a stream that was lost does not hear it again. One who has
        not hears it again as a whole. One who does not agree to a recording does not hear it: there is none.
        """
        return self._unheard(call) if _agrees(call) else ""

    def _unheard(self, call: Call) -> str:
        """Return the phrase without which a call is not recorded, where its caller has not heard it yet."""
        phrase = self._settings.announcement if self._settings.enabled else ""
        return "" if phrase in call.resumption.earlier.announced else phrase

    @property
    def are_made(self) -> bool:
        """True when calls are recorded."""
        return self._settings.enabled

    def facts_of(self, session_id: str, client: SocketClient) -> dict[str, str]:
        """Return the id under which the recording of a call is found, as a fact for its client.

        It is empty where the call is not recorded, or not before its caller has heard the announcement or has
        answered the client: until then the caller has agreed to nothing.
        """
        if not self._settings.enabled or self._settings.announcement or client.asks_consent:
            return {}
        return {"recording_session_id": session_id}

    @asynccontextmanager
    async def recorded(self, call: Call, mode: str) -> AsyncIterator[None]:
        """Record a call of a mode while the block runs, where the deployment enables it."""
        recorder = self._open(call, mode) if self._settings.enabled else None
        if recorder is None:
            yield
            return
        _Beginning(call, recorder, self._unheard(call))
        running = asyncio.create_task(recorder.run(), name="call.recording")
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            is_deleted = isinstance(call.conversation.loss, UnknownSessionError)
            if is_deleted:
                # During the call, maybe by another process: what waits for the disk is not written any more.
                self._removed.add(call.conversation.session_id)
            await recorder.close()
            if not recorder.is_started:
                lacks = "heard recording.announcement" if _agrees(call) else "agreed to a recording"
                logger.info(f"a call was not recorded: its caller has not {lacks}")
            if is_deleted:
                self._remove_later(call.conversation.session_id)

    async def remove(self, session_id: str) -> RemovedRecordings:
        """Remove the recordings of a session that is deleted, also where calls are not recorded any more.

        Raises:
            MediaError: something foreign is in its folder, or the disk refuses.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._removing, self._removed.remove, session_id)

    async def close(self) -> None:
        """Write what waits, within ``SHUTDOWN_S`` for each thread."""
        if self._retention is not None:
            self._retention.close()
        if self._removing is not None:
            self._removing.shutdown(wait=False)
        ends: list[Callable[[float], bool]] = [self._disk.close, self._merging.close]
        if self._uploads is not None and not await asyncio.to_thread(self._uploads.close, SHUTDOWN_S):
            logger.info("an upload of a recording was not waited for: the next start repeats it")
        for end in ends:
            if not await asyncio.to_thread(end, SHUTDOWN_S):
                logger.warning("recordings are incomplete: the disk did not take them before the end")

    def _remove_later(self, session_id: str) -> None:
        """Have a session removed by the thread that wrote it, or by the other one when that cannot."""
        job = partial(_remove, self._removed, session_id)
        if not (self._disk.put(job, is_last=True) or self._merging.put(job, is_last=True)):
            path = self._settings.folder / SESSIONS / session_id
            logger.warning(
                f"the recordings of a deleted session are left, the disk is too slow: remove {path}"
            )

    def _open(self, call: Call, mode: str) -> CallRecorder | None:
        conversation, began_ms = call.conversation, call.live.began_ms
        ago_us = (call.events.now_ms() - began_ms) * _US_PER_MS
        recorded = RecordingSource(
            conversation.session_id,
            call.call_id,
            call.transport,
            self._deployment,
            is_live=call.capabilities.has_clock,
            began_loop_us=began_ms * _US_PER_MS,
            began_us=conversation.clock.now_us() - ago_us,
            redaction=self._redaction,
            mode=mode,
            echo_control=call.live.echo_control,
        )
        merging = self._merging if self._settings.merged else None
        try:
            return CallRecorder(
                self._settings,
                recorded,
                call.events,
                disk=self._disk,
                merging=merging,
                removed=self._removed,
            )
        except MediaError as error:
            logger.warning(f"a call is not recorded: {error}")
            return None


def check_recording(settings: RecordingSettings) -> None:
    """Check what the recordings of a deployment need.

    Raises:
        ConfigError: a key is missing or wrong, or a package is not installed.
    """
    if settings.s3 is not None:
        check_bucket()
    if settings.encrypted:
        check_encryption()
    else:
        # Earlier recordings may be encrypted.
        RecordingKeys.from_environment()


def _agrees(call: Call) -> bool:
    """Return whether a caller agrees to a recording, where their client asks them."""
    given = call.client.requested().allow_recording
    return not call.client.asks_consent if given is None else given


class _Beginning:
    """Beginning of the recording of one call, and its end where the caller refuses it.

    A call is recorded once its caller has heard the announcement, and agrees where their client asks. A
    recording that is refused later is removed, and the call has no other.

    Args:
        call: the call.
        recorder: its recorder.
        phrase: announcement that the caller has not heard yet; empty for none.
    """

    def __init__(self, call: Call, recorder: CallRecorder, phrase: str) -> None:
        self._call, self._recorder, self._phrase = call, recorder, phrase
        call.events.subscribe(RecordingConsentChanged, self._on_consent)
        if phrase:
            when_heard(call.events, phrase, self._on_heard, in_units=call.client.reports_units)
        self._begin()

    def _on_heard(self) -> None:
        phrase, self._phrase = self._phrase, ""
        self._call.events.publish(RecordingAnnounced(self._call.events.now_ms(), phrase))
        self._begin()

    def _on_consent(self, event: RecordingConsentChanged) -> None:
        if event.is_given:
            self._begin()
        else:
            self._recorder.discard()

    def _begin(self) -> None:
        if self._phrase or self._recorder.is_started or not _agrees(self._call):
            return
        self._call.live.follow_media(self._recorder)
        self._recorder.start()


def _remove(removed: RemovedSessions, session_id: str) -> None:
    try:
        removed.remove(session_id)
    except MediaError as error:
        logger.warning(f"the recordings of a deleted session are left: {error}")
