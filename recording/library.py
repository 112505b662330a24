"""Recordings of one session, as a page shows them: a list, one call's timeline, and their files.

Input: the folder of the recordings, the id of a session, and names that a client chose. Every name is checked
(``folder``): a link, a foreign file and a name with a path in it are as absent. Output: facts for JSON, paths
of files, and a ZIP in pieces. Nothing is decoded here.

Everything here blocks: on a server it runs in a thread.
"""

import io
import zipfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


class _Lost(BaseModel):
    length_ms: int = 0


class _SideFacts(BaseModel):
    lost: list[_Lost] = []


class _Timeline(BaseModel):
    """Fields of ``recording.json`` that are read; the file may come from anywhere."""

    model_config = ConfigDict(populate_by_name=True)

    is_over: bool = False
    duration_ms: int = 0
    caller: _SideFacts = Field(_SideFacts(), alias=CALLER_AUDIO)
    bot: _SideFacts = Field(_SideFacts(), alias=BOT_AUDIO)
    pictures: list[int] = Field([], alias=FRAMES)
    events: list[dict[str, Any]] = []


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


def recorded_calls(folder: Path, session_id: str) -> list[RecordingSummary]:
    """Return the recorded calls of a session, oldest first; what cannot be read is left out.

    Raises:
        MediaError: not the id of a session.
    """
    return [_facts(each) for each in recordings_of(folder, session_id)[-MOST_CALLS:]]


def call_detail(folder: Path, session_id: str, call_id: str) -> dict[str, Any]:
    """Return the timeline of a recorded call and the peaks of its sides, for a page that draws it.

    Raises:
        MediaError: there is no such recording, or it cannot be read.
    """
    recording = read_recording(call_folder(folder, session_id, call_id))
    timeline = _timeline(recording)
    return {
        "call_id": recording.call_id,
        "began_us": _began_us(recording),
        "duration_ms": timeline.duration_ms,
        "events": timeline.events,
        "pictures": timeline.pictures,
        "peaks": read_json(recording.path / PEAKS) if is_file(recording.path / PEAKS) else None,
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


def zipped(folder: Path, session_id: str) -> Generator[bytes]:
    """Yield a ZIP of all recordings of a session, a piece at a time; only their own files are in it.

    FLAC, JPEG and WAV are stored as they are. A file that disappears meanwhile is left out.

    Raises:
        MediaError: before the first piece: not the id of a session, or nothing was recorded.
    """
    recordings = recordings_of(folder, session_id)
    if not recordings:
        raise MediaError("nothing was recorded in this session")
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for path, name in chain.from_iterable(_files(each) for each in recordings):
            try:
                source = path.open("rb")
            except OSError:
                continue
            with source, archive.open(zipfile.ZipInfo.from_file(path, name), "w", force_zip64=True) as entry:
                while piece := source.read(CHUNK_BYTES):
                    entry.write(piece)
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


def _timeline(recording: CallRecording) -> _Timeline:
    try:
        return _Timeline.model_validate(recording.timeline())
    except (MediaError, ValidationError):
        # The audio is there nevertheless.
        return _Timeline()


def _began_us(recording: CallRecording) -> int:
    began_us = recording.meta.get("began_us")
    return began_us if isinstance(began_us, int) else 0


def _facts(recording: CallRecording) -> RecordingSummary:
    timeline, meta = _timeline(recording), recording.meta
    return RecordingSummary(
        recording.call_id,
        str(meta.get("transport", "")),
        _began_us(recording),
        timeline.duration_ms,
        sum(lost.length_ms for side in (timeline.caller, timeline.bot) for lost in side.lost),
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
