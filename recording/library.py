"""Recordings of one session, as a page shows them: a list, one call's timeline, and their files.

Input: the folder of the recordings, the id of a session, and names that a client chose. Every name is checked
(``folder``): a link, a foreign file and a name with a path in it are as absent. Output: facts for JSON, paths
of files, and a ZIP in pieces. Nothing is decoded here.

Everything here blocks: on a server it runs in a thread.
"""

import io
import time
import zipfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import MediaError
from parley.recording.at_rest import AlteredFileError, RecordingKeyError
from parley.recording.call_files import CHUNK_BYTES, CallFiles, is_folder
from parley.recording.folder import (
    BOT_AUDIO,
    CALLER_AUDIO,
    CLIENT_REPLAYS,
    FRAMES,
    IMAGES,
    MERGED,
    META,
    PEAKS,
    TIMELINE,
    VIDEO,
    CallRecording,
    call_folder,
    image_facts,
    is_call,
    read_recording,
    session_folder,
)
from parley.recording.objects import CallObjects, RecordingBucket
from parley.recording.retention import mark_used
from parley.recording.timeline import SERVED_BYTES, RecordedTimeline, timeline_of
from parley.runtime.object_store import ObjectStoreError

# Failures that concern more than a recording that is half written.
UNREAD = (RecordingKeyError, AlteredFileError, ObjectStoreError)
# Timelines that are kept, without their events.
MOST_KNOWN = 2_000
_MEDIA_FOLDERS = {(CALLER_AUDIO,), (BOT_AUDIO,), (FRAMES,), (IMAGES,)}
_MEDIA_TYPES = {
    "wav": "audio/wav",
    "flac": "audio/flac",
    "jpg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
    "webm": "video/webm",
    "mp4": "video/mp4",
}
# Calls of one session that are listed, the newest ones.
MOST_CALLS = 200


class SilentCallError(MediaError):
    """A recorded call has no audio of the caller."""


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """Facts of a recorded call, for the list of a session.

    Attributes:
        call_id: its id.
        transport: how the caller came.
        began_us: when it began, on the session clock.
        duration_ms: length of the recording as far as it is known; 0 until its first timeline is written.
        lost_ms: length of the audio that was lost, of both sides.
        is_over: its end was written; False too for a call that was killed.
        has_replay: its stereo WAV is there.
        has_film: its film is there, as it is for calls with a camera.
        pictures: number of pictures of the camera.
        problem: why the call cannot be read, where its files are encrypted; empty when it can.
        client_replay: name of the latest recording that its client has uploaded; empty without one.
    """

    call_id: str
    transport: str
    began_us: int
    duration_ms: int
    lost_ms: int
    is_over: bool
    has_replay: bool
    has_film: bool
    pictures: int
    problem: str = ""
    client_replay: str = ""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """File of a recorded call.

    Attributes:
        files: files of the call.
        path: of this one.
    """

    files: CallFiles
    path: Path

    def version(self) -> tuple[int, int]:
        """Return what changes with the file, its time and its stored size in bytes.

        Raises:
            MediaError: it is not there any more.
        """
        found = self.files.version(self.path)
        if found is None:
            raise MediaError("the file is not there any more")
        return found

    def open(self) -> tuple[BinaryIO, int]:
        """Open it for reading, and return its length in bytes too; raises as ``CallFiles.open``."""
        file = self.files.open(self.path)
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        return file, size

    def read(self) -> bytes:
        """Return its content; raises as ``CallFiles.open``."""
        return self.files.read(self.path)


def recordings_of(
    folder: Path, session_id: str, bucket: RecordingBucket | None = None
) -> list[CallRecording]:
    """Return the recordings of a session that can be read, oldest first, also those in a bucket.

    Raises:
        RecordingKeyError: one of them is encrypted with a key that is not here.
        AlteredFileError: one of them is encrypted, and was altered.
        ObjectStoreError: the bucket does not answer.
        MediaError: not the id of a session.
    """
    found = []
    for path, objects in _calls_of(folder, session_id, bucket):
        try:
            found.append(read_recording(path, objects=objects))
        except UNREAD:
            raise
        except MediaError:
            # Half written or foreign: the list has what can be read.
            continue
    return sorted(found, key=_age)


class RecordingSummaries:
    """Summaries of the calls of sessions. A timeline is read once for each of its versions.

    Args:
        folder: of the recordings.
        bucket: to which they move; None: they stay.
    """

    def __init__(self, folder: Path, bucket: RecordingBucket | None = None) -> None:
        self._folder, self._bucket = folder, bucket
        self._lock = Lock()
        self._known: BoundedDict[Path, tuple[tuple[int, int], RecordedTimeline]] = BoundedDict(MOST_KNOWN)

    def of_session(self, session_id: str) -> tuple[list[RecordingSummary], int]:
        """Return the newest calls of a session, oldest first, and the number of bytes that were read for it.

        Raises:
            MediaError: not the id of a session.
        """
        found, problems = _readable(self._folder, session_id, self._bucket)
        summaries, read_bytes = [], 0
        for recording in found[-MOST_CALLS:]:
            try:
                timeline, size = self._timeline(recording)
            except (RecordingKeyError, AlteredFileError) as error:
                problems.append(_unread(recording.call_id, error))
                continue
            read_bytes += size
            summaries.append(_summary(recording, timeline))
        return [*problems[-MOST_CALLS:], *summaries], read_bytes

    def forget(self, session_id: str) -> int:
        """Drop what is kept of a session that was deleted; return the number of its calls."""
        with self._lock:
            calls = [path for path in self._known if path.parent.name == session_id]
            for path in calls:
                del self._known[path]
        return len(calls)

    def _timeline(self, recording: CallRecording) -> tuple[RecordedTimeline, int]:
        version = recording.files.version(recording.path / TIMELINE)
        if version is None:
            return RecordedTimeline(), 0
        with self._lock:
            known = self._known.get(recording.path)
        if known is not None and known[0] == version:
            return known[1], 0
        timeline = timeline_of(recording, most_bytes=SERVED_BYTES).model_copy(update={"events": []})
        with self._lock:
            self._known[recording.path] = version, timeline
        return timeline, version[1]


def call_detail(
    folder: Path, session_id: str, call_id: str, bucket: RecordingBucket | None = None
) -> dict[str, Any]:
    """Return the timeline of a recorded call and the peaks of its sides, for a page that draws it.

    Raises:
        MediaError: there is no such recording.
    """
    recording = recording_of(folder, session_id, call_id, bucket)
    timeline = timeline_of(recording, most_bytes=SERVED_BYTES)
    peaks = None
    if recording.files.has(recording.path / PEAKS):
        try:
            peaks = recording.files.json(recording.path / PEAKS, most_bytes=SERVED_BYTES)
        except UNREAD:
            raise
        except MediaError:
            # The page draws the call without them.
            peaks = None
    return {
        "call_id": recording.call_id,
        "began_us": _began_us(recording),
        "duration_ms": timeline.duration_ms,
        "events": timeline.events,
        "pictures": timeline.pictures,
        "images": [{"at_ms": image_facts(each.name)[0], "name": each.name} for each in recording.images()],
        "peaks": peaks,
    }


def replay_file(
    folder: Path,
    session_id: str,
    call_id: str,
    bucket: RecordingBucket | None = None,
    *,
    film: bool = False,
) -> StoredFile:
    """Return the stereo WAV of a recorded call, or its film.

    Raises:
        MediaError: there is none (yet).
    """
    recording = recording_of(folder, session_id, call_id, bucket)
    found = StoredFile(recording.files, recording.path / (VIDEO if film else MERGED))
    if not found.files.has(found.path):
        what = "film, which calls with a camera have" if film else "stereo file"
        raise MediaError(f"this call has no {what}: it is made when the call is over")
    return found


def picture_file(
    folder: Path, session_id: str, call_id: str, at_ms: int, bucket: RecordingBucket | None = None
) -> StoredFile:
    """Return the picture of the camera at a time of a recorded call.

    Raises:
        MediaError: there is none.
    """
    recording = recording_of(folder, session_id, call_id, bucket)
    name = f"{at_ms:09}.jpg"
    if name not in recording.files.names(recording.path / FRAMES):
        raise MediaError("there is no such picture")
    return StoredFile(recording.files, recording.path / FRAMES / name)


def image_file(
    folder: Path, session_id: str, call_id: str, name: str, bucket: RecordingBucket | None = None
) -> tuple[StoredFile, str]:
    """Return a picture of a turn of the caller, and its media type.

    Raises:
        MediaError: there is none.
    """
    _, media_type = image_facts(name)
    recording = recording_of(folder, session_id, call_id, bucket)
    if name not in recording.files.names(recording.path / IMAGES):
        raise MediaError("there is no such picture")
    return StoredFile(recording.files, recording.path / IMAGES / name), media_type


def client_replay_file(
    folder: Path, session_id: str, call_id: str, bucket: RecordingBucket | None = None
) -> tuple[StoredFile, str]:
    """Return the recording that the client of a call has uploaded, and its media type.

    Raises:
        MediaError: there is none.
    """
    recording = recording_of(folder, session_id, call_id, bucket)
    name = _client_replay(recording)
    if not name:
        raise MediaError("the client of this call has uploaded no recording")
    return StoredFile(recording.files, recording.path / name), _MEDIA_TYPES[name.rpartition(".")[2]]


def asset_file(
    folder: Path, session_id: str, parts: Sequence[str], bucket: RecordingBucket | None = None
) -> tuple[StoredFile, str]:
    """Return a media file of the newest call of a session that has it, and its media type.

    Args:
        folder: of the recordings.
        session_id: of the session.
        parts: name of the file in the folder of the call, or that of a folder in it and of the file.
        bucket: to which recordings move; None: they stay.

    Raises:
        MediaError: there is none.
    """
    *above, name = parts
    ending = name.rpartition(".")[2]
    known = {MERGED, VIDEO, *CLIENT_REPLAYS.values()} if not above else set()
    for recording in reversed(recordings_of(folder, session_id, bucket)):
        below = recording.path.joinpath(*above)
        if above and tuple(above) in _MEDIA_FOLDERS:
            known = set(recording.files.names(below))
        if ending in _MEDIA_TYPES and name in known and recording.files.has(below / name):
            return StoredFile(recording.files, below / name), _MEDIA_TYPES[ending]
    raise MediaError("there is no such file in a recorded call of the session")


def replayable_ms(folder: Path, session_id: str, call_id: str, bucket: RecordingBucket | None = None) -> int:
    """Return the length of a recorded call that can be held again.

    Raises:
        MediaError: there is no such recording; as ``SilentCallError``, it has no audio of the caller.
    """
    recording = recording_of(folder, session_id, call_id, bucket)
    if not recording.segments(CALLER_AUDIO):
        raise SilentCallError("this call has no audio of the caller, so it cannot be held again")
    return timeline_of(recording).duration_ms


def zipped(recordings: Sequence[CallRecording]) -> Generator[bytes]:
    """Yield a ZIP of recordings, decrypted, a piece at a time; only their own files are in it.

    FLAC, JPEG and WAV are stored as they are. Every file that is read is a use of its session, so that
    retention leaves what is still to be read.

    Raises:
        OSError: a file has disappeared: an archive that looks whole would lack it.
    """
    sink, listed = _Sink(), [(each, *file) for each in recordings for file in _files(each)]
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for call, path, name in listed:
            mark_used(call.path)
            written_ns, _ = call.files.version(path) or (time.time_ns(), 0)
            entry = zipfile.ZipInfo(name, time.localtime(written_ns // 1_000_000_000)[:6])
            entry.external_attr = 0o100644 << 16
            with call.files.open(path) as source, archive.open(entry, "w", force_zip64=True) as packed:
                while piece := source.read(CHUNK_BYTES):
                    packed.write(piece)
                    yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """File that is written to and cannot be sought, from which pieces are taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def recording_of(
    folder: Path, session_id: str, call_id: str, bucket: RecordingBucket | None = None
) -> CallRecording:
    """Return the recording of a call.

    Raises:
        MediaError: there is none, or it cannot be read.
    """
    path = call_folder(folder, session_id, call_id)
    return read_recording(path, objects=None if bucket is None else bucket.call(session_id, call_id))


def _calls_of(
    folder: Path, session_id: str, bucket: RecordingBucket | None
) -> list[tuple[Path, CallObjects | None]]:
    """Return the calls of a session, by the places of their folders; raises as ``recordings_of``."""
    session = session_folder(folder, session_id)
    calls: dict[Path, CallObjects | None] = {}
    if bucket is not None:
        calls |= {session / call_id: objects for call_id, objects in bucket.calls(session_id).items()}
    if is_folder(session):
        for path in session.iterdir():
            if is_call(path.name) and is_folder(path):
                # While it is read, it may leave.
                calls[path] = None if bucket is None else bucket.call(session_id, path.name)
    return list(calls.items())


def _readable(
    folder: Path, session_id: str, bucket: RecordingBucket | None
) -> tuple[list[CallRecording], list[RecordingSummary]]:
    """Return the recordings of a session, oldest first, and the encrypted ones that cannot be read."""
    found, problems = [], []
    for path, objects in _calls_of(folder, session_id, bucket):
        try:
            found.append(read_recording(path, objects=objects))
        except ObjectStoreError:
            raise
        except (RecordingKeyError, AlteredFileError) as error:
            problems.append(_unread(path.name, error))
        except MediaError:
            # Half written or foreign.
            continue
    return sorted(found, key=_age), problems


def _unread(call_id: str, error: MediaError) -> RecordingSummary:
    return RecordingSummary(call_id, "", 0, 0, 0, True, False, False, 0, problem=str(error))


def _age(recording: CallRecording) -> tuple[int, str]:
    return _began_us(recording), recording.call_id


def _began_us(recording: CallRecording) -> int:
    began_us = recording.meta.get("began_us")
    return began_us if isinstance(began_us, int) else 0


def _summary(recording: CallRecording, timeline: RecordedTimeline) -> RecordingSummary:
    return RecordingSummary(
        recording.call_id,
        str(recording.meta.get("transport", "")),
        _began_us(recording),
        timeline.duration_ms,
        timeline.lost_ms,
        timeline.is_over,
        recording.files.has(recording.path / MERGED),
        recording.files.has(recording.path / VIDEO),
        len(timeline.pictures),
        client_replay=_client_replay(recording),
    )


def _client_replay(recording: CallRecording) -> str:
    """Return the name of the latest recording that the client has uploaded; empty without one."""
    versions = ((recording.files.version(recording.path / name), name) for name in CLIENT_REPLAYS.values())
    return max(((found, name) for found, name in versions if found is not None), default=(None, ""))[1]


def _files(recording: CallRecording) -> Iterator[tuple[Path, str]]:
    """Yield the files of a recording with their names in an archive."""
    path = recording.path
    for name in (META, TIMELINE, PEAKS, MERGED, VIDEO, *CLIENT_REPLAYS.values()):
        if recording.files.has(path / name):
            yield path / name, f"{recording.call_id}/{name}"
    for side in (CALLER_AUDIO, BOT_AUDIO):
        for _, segment in sorted(recording.segments(side).items()):
            yield segment, f"{recording.call_id}/{side}/{segment.name}"
    for _, picture in recording.pictures():
        yield picture, f"{recording.call_id}/{FRAMES}/{picture.name}"
    for image in recording.images():
        yield image, f"{recording.call_id}/{IMAGES}/{image.name}"
