"""Recording that a client made of its own call, such as a browser's, kept with the recording of the call.

Input: pieces of a file as they arrive, with the kind that its sender claims. Output: ``frontend_replay.webm``
(or ``.mp4``, ``.wav``) in the folder of the call, encrypted where the call is, or in the bucket where the
call is there. The file is there as a whole or not at all; another one of its kind replaces it. It goes with
its session: retention, deletion, uploads and archives treat it as a part of the call.

The kind is checked by the beginning of the content. Nothing is decoded here. A call whose recording leaves
out personal data or a private pause gets none: the client's own would have what is left out. Everything here
blocks.
"""

import os
import shutil
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from parley.core.call_events import PrivatePauseBegan
from parley.core.errors import MediaError
from parley.recording.call_files import is_folder, partial_name
from parley.recording.folder import CLIENT_REPLAYS, SESSIONS, CallRecording
from parley.recording.library import recordings_of
from parley.recording.merge import check_space
from parley.recording.objects import RecordingBucket
from parley.recording.retention import UPLOADING, mark_used
from parley.recording.settings import RecordingSettings
from parley.recording.timeline import timeline_of

# Media types that browsers' recorders claim, and the ending of the file.
ENDINGS: Mapping[str, str] = {
    "video/webm": "webm",
    "audio/webm": "webm",
    "video/mp4": "mp4",
    "audio/wav": "wav",
}
# Bytes of the beginning by which a kind is known.
HEAD_BYTES = 64
MB = 1_000_000
# Event after which nothing is recorded for a while; recordings of earlier versions have only that.
PAUSE = PrivatePauseBegan.__name__


class NoRecordedCallError(MediaError):
    """The call has no recording with which a client's own could be kept."""


class WithheldAudioError(MediaError):
    """The recording of the call leaves something out, which a client's own recording would have."""


class DiskFullError(MediaError):
    """There is no space for a client's recording."""


def ending_of(head: bytes) -> str:
    """Return the ending of a file with this beginning; empty for a file of another kind."""
    if head.startswith(b"\x1a\x45\xdf\xa3") and b"webm" in head:
        # EBML whose document type is WebM; Matroska is another one.
        return "webm"
    if head[4:8] == b"ftyp":
        return "mp4"
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "wav"
    return ""


class ClientReplayWriter:
    """File of one client's recording while it arrives.

    Args:
        settings: of the deployment.
        recording: of the call.
        ending: of the file.
        bucket: in which the call may be; None: there is none.

    Raises:
        DiskFullError: too little space is left.
        MediaError: the call was removed meanwhile.
    """

    def __init__(
        self,
        settings: RecordingSettings,
        recording: CallRecording,
        ending: str,
        bucket: RecordingBucket | None,
    ) -> None:
        self._settings, self._call, self._bucket = settings, recording, bucket
        self._name = CLIENT_REPLAYS[ending]
        self._is_here = is_folder(recording.path)
        self._root: Path | None = None
        self._stack = ExitStack()
        folder = recording.path if self._is_here else self._made_folder()
        try:
            self._check_space(folder)
            file = recording.files.at(folder).replacing(folder / self._name)
            self._file: BinaryIO = self._stack.enter_context(file)
        except OSError as error:
            self._leave()
            raise MediaError("the recording of the call was removed") from error
        except BaseException:
            self._leave()
            raise
        self._path = folder / self._name

    @property
    def name(self) -> str:
        """Name of the file in the folder of the call."""
        return self._name

    def write(self, piece: bytes) -> None:
        """Write the next piece.

        Raises:
            DiskFullError: too little space is left.
            MediaError: the disk refuses.
        """
        self._check_space(self._path.parent)
        try:
            self._file.write(piece)
            # Its time says that it is being received (``uploads``), also while a buffer has the piece.
            os.utime(partial_name(self._path))
        except OSError as error:
            raise MediaError(f"the disk: {error.strerror or type(error).__name__}") from error

    def finish(self) -> None:
        """Put the complete file in its place; ``discard`` it where that fails.

        Raises:
            WithheldAudioError: a private pause has begun meanwhile.
            MediaError: the call was removed meanwhile, or the disk refuses.
            ObjectStoreError: the bucket does not answer.
        """
        check_is_whole(self._call)
        try:
            try:
                self._stack.close()
            except OSError as error:
                raise MediaError("the recording of the call was removed") from error
            if self._is_here:
                mark_used(self._call.path)
            elif self._bucket is not None:
                self._bucket.put(self._key, self._path)
        finally:
            self._leave()

    def discard(self, error: BaseException) -> None:
        """Leave nothing of the file, for this reason."""
        try:
            self._stack.__exit__(type(error), error, error.__traceback__)
        finally:
            self._leave()

    def undo(self) -> None:
        """Remove the file from its place again: its session was deleted meanwhile.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        if self._is_here:
            with suppress(OSError):
                self._path.unlink()
        elif self._bucket is not None:
            self._bucket.remove_file(self._key)

    @property
    def _key(self) -> str:
        return f"{SESSIONS}/{self._call.session_id}/{self._call.call_id}/{self._name}"

    def _made_folder(self) -> Path:
        """Return a folder in place of that of the call, which is in the bucket.

        It has the name of a removal: what a run that is killed leaves, a later one removes (``UPLOADING_S``).
        """
        root = self._settings.folder / SESSIONS / f"{UPLOADING}{uuid.uuid4().hex}"
        folder = root / self._call.session_id / self._call.call_id
        folder.mkdir(parents=True)
        self._root = root
        return folder

    def _leave(self) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    def _check_space(self, folder: Path) -> None:
        try:
            check_space(folder, 0, self._settings.min_free_gb)
        except OSError as error:
            raise MediaError("the recording of the call was removed") from error
        except MediaError as error:
            raise DiskFullError(str(error)) from error


def open_client_replay(
    settings: RecordingSettings, session_id: str, call_id: str, ending: str, bucket: RecordingBucket | None
) -> ClientReplayWriter:
    """Return a writer of a recording that goes with that of a call of a session.

    Raises:
        NoRecordedCallError: the call was not recorded.
        WithheldAudioError: personal data are left out of its recording, or a private pause is.
        DiskFullError: too little space is left.
        MediaError: its call cannot be read, or was removed.
        ObjectStoreError: it is in a bucket that does not answer.
    """
    found = recordings_of(settings.folder, session_id, bucket)
    recording = next((each for each in found if each.call_id == call_id), None)
    if recording is None:
        raise NoRecordedCallError("the newest call of the session was not recorded, or the session has none")
    check_is_whole(recording)
    return ClientReplayWriter(settings, recording, ending, bucket)


def check_is_whole(recording: CallRecording) -> None:
    """Check that nothing is left out of the recording of a call on purpose.

    Raises:
        WithheldAudioError: personal data are, or a private pause is.
    """
    if recording.meta.get("redaction") is not None:
        raise WithheldAudioError("personal data are left out of this recording: no other one is kept with it")
    timeline = timeline_of(recording)
    if timeline.had_pause or any(event["event"] == PAUSE for event in timeline.events):
        raise WithheldAudioError("this call had a private pause: no other recording is kept with it")
