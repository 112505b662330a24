"""Recordings of one session, as a page shows them: a list, one call's timeline, and their files.

Input: the folder of the recordings, the id of a session, and names that a client chose. Every name is checked
(``folder``): a link, a foreign file and a name with a path in it are as absent. Output: facts for JSON, paths
of files, and a ZIP in pieces. Nothing is decoded here.

Everything here blocks: on a server it runs in a thread.
"""

import io
import zipfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import MediaError
from parley.recording.folder import (
    BOT_AUDIO,
    CALLER_AUDIO,
    FRAMES,
    MERGED,
    META,
    PEAKS,
    TIMELINE,
    VIDEO,
    CallRecording,
    call_folder,
    is_call,
    is_file,
    is_folder,
    read_json,
    read_recording,
    session_folder,
)
from parley.recording.retention import mark_used
from parley.recording.timeline import SERVED_BYTES, RecordedTimeline, timeline_of

# Timelines that are kept, without their events.
MOST_KNOWN = 2_000
# Read and sent together.
CHUNK_BYTES = 65_536
# Calls of one session that are listed, the newest ones.
MOST_CALLS = 200


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


def recordings_of(folder: Path, session_id: str) -> list[CallRecording]:
    """Return the recordings of a session that can be read, oldest first.

    Raises:
        MediaError: not the id of a session.
    """
    session = session_folder(folder, session_id)
    if not is_folder(session):
        return []
    found = []
    for path in session.iterdir():
        if is_call(path.name) and is_folder(path):
            # Half written or foreign: the list has what can be read.
            with suppress(MediaError):
                found.append(read_recording(path))
    return sorted(found, key=lambda each: (_began_us(each), each.call_id))


class RecordingSummaries:
    """Summaries of the calls of sessions. A timeline is read once for each of its versions.

    Args:
        folder: of the recordings.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()
        self._known: BoundedDict[Path, tuple[tuple[int, int], RecordedTimeline]] = BoundedDict(MOST_KNOWN)

    def of_session(self, session_id: str) -> tuple[list[RecordingSummary], int]:
        """Return the newest calls of a session, oldest first, and the number of bytes that were read for it.

        Raises:
            MediaError: not the id of a session.
        """
        summaries, read_bytes = [], 0
        for recording in recordings_of(self._folder, session_id)[-MOST_CALLS:]:
            timeline, size = self._timeline(recording)
            read_bytes += size
            summaries.append(_summary(recording, timeline))
        return summaries, read_bytes

    def _timeline(self, recording: CallRecording) -> tuple[RecordedTimeline, int]:
        try:
            status = (recording.path / TIMELINE).stat()
        except OSError:
            return RecordedTimeline(), 0
        version = status.st_mtime_ns, status.st_size
        with self._lock:
            known = self._known.get(recording.path)
        if known is not None and known[0] == version:
            return known[1], 0
        timeline = timeline_of(recording, most_bytes=SERVED_BYTES).model_copy(update={"events": []})
        with self._lock:
            self._known[recording.path] = version, timeline
        return timeline, status.st_size


def call_detail(folder: Path, session_id: str, call_id: str) -> dict[str, Any]:
    """Return the timeline of a recorded call and the peaks of its sides, for a page that draws it.

    Raises:
        MediaError: there is no such recording.
    """
    recording = read_recording(call_folder(folder, session_id, call_id))
    timeline = timeline_of(recording, most_bytes=SERVED_BYTES)
    peaks = None
    with suppress(MediaError):
        # Missing while the stereo file is being made.
        peaks = read_json(recording.path / PEAKS, most_bytes=SERVED_BYTES)
    return {
        "call_id": recording.call_id,
        "began_us": _began_us(recording),
        "duration_ms": timeline.duration_ms,
        "events": timeline.events,
        "pictures": timeline.pictures,
        "peaks": peaks,
    }


def replay_file(folder: Path, session_id: str, call_id: str, *, film: bool = False) -> Path:
    """Return the stereo WAV of a recorded call, or its film.

    Raises:
        MediaError: there is none (yet).
    """
    path = read_recording(call_folder(folder, session_id, call_id)).path / (VIDEO if film else MERGED)
    if not is_file(path):
        what = "film, which calls with a camera have" if film else "stereo file"
        raise MediaError(f"this call has no {what}: it is made when the call is over")
    return path


def picture_file(folder: Path, session_id: str, call_id: str, at_ms: int) -> Path:
    """Return the picture of the camera at a time of a recorded call.

    Raises:
        MediaError: there is none.
    """
    frames = read_recording(call_folder(folder, session_id, call_id)).path / FRAMES
    path = frames / f"{at_ms:09}.jpg"
    if not (is_folder(frames) and is_file(path)):
        raise MediaError("there is no such picture")
    return path


def zipped(recordings: Sequence[CallRecording]) -> Generator[bytes]:
    """Yield a ZIP of recordings, a piece at a time; only their own files are in it.

    FLAC, JPEG and WAV are stored as they are. Every file that is read is a use of its session, so that
    retention leaves what is still to be read.

    Raises:
        OSError: a file has disappeared: an archive that looks whole would lack it.
    """
    sink, listed = _Sink(), [(each.path, *file) for each in recordings for file in _files(each)]
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for call, path, name in listed:
            mark_used(call)
            entry = zipfile.ZipInfo.from_file(path, name)
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as packed:
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
        is_file(recording.path / MERGED),
        is_file(recording.path / VIDEO),
        len(timeline.pictures),
    )


def _files(recording: CallRecording) -> Iterator[tuple[Path, str]]:
    """Yield the files of a recording with their names in an archive."""
    path = recording.path
    for name in (META, TIMELINE, PEAKS, MERGED, VIDEO):
        if is_file(path / name):
            yield path / name, f"{recording.call_id}/{name}"
    for side in (CALLER_AUDIO, BOT_AUDIO):
        for _, segment in sorted(recording.segments(side).items()):
            yield segment, f"{recording.call_id}/{side}/{segment.name}"
    frames = path / FRAMES
    if is_folder(frames):
        for picture in sorted(frames.glob("[0-9]*.jpg")):
            if is_file(picture):
                yield picture, f"{recording.call_id}/{FRAMES}/{picture.name}"
