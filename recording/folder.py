"""Names of a recording on the disk, and what is in a folder that may come from anywhere.

    FOLDER/sessions/SESSION/CALL/
        meta.json           facts of the call, written when it begins
        recording.json      segments, losses and the timeline of events; renewed during the call
        user_audio/         the caller: 000000.flac, 000001.flac, ...; the number times 5 s is the place
        ai_audio/           the bot
        user_frames/        pictures of the camera: milliseconds from the beginning, .jpg
        user_images/        pictures of the caller's turns: milliseconds, place in the turn, .jpg
        merged_replay.wav   both sides in stereo, the caller left, when the call is over
        merged_replay.mp4   the camera with both sides and captions, where there are pictures
        peaks.json          loudness of both sides over time
        frontend_replay.webm  recording that the client made itself, or .mp4, .wav

A session may have several calls, so each has a folder of its own. Names of sessions and calls are ids that
this product makes. Others, links, and files without ``meta.json`` next to them are foreign: they are neither
read nor removed.

Everything here blocks.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.core.errors import MediaError
from parley.recording.at_rest import RecordingKeys
from parley.recording.call_files import MOST_JSON_BYTES, CallFiles, ObjectFiles, is_file, is_folder

SESSIONS = "sessions"
META, TIMELINE, MERGED, PEAKS = "meta.json", "recording.json", "merged_replay.wav", "peaks.json"
VIDEO = "merged_replay.mp4"
CALLER_AUDIO, BOT_AUDIO = "user_audio", "ai_audio"
FRAMES, IMAGES = "user_frames", "user_images"
# Recordings that clients make of their own calls, by the ending of their names.
CLIENT_REPLAYS = {ending: f"frontend_replay.{ending}" for ending in ("webm", "mp4", "wav")}
# An operator puts this file into the folder of a session whose recordings stay.
PINNED = "pinned"
VERSION = 1

_SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CALL = re.compile(r"[0-9a-f]{32}")
_SEGMENT = re.compile(r"([0-9]{6,9})\.flac")
_PICTURE = re.compile(r"([0-9]+)\.jpg")
_IMAGE = re.compile(r"([0-9]+)-[0-9]+\.(jpg|png|webp)")
_ENDINGS = {"image/jpeg": "jpg", "image/png": "png", "image/webp": "webp"}
# Files and folders of the recording of a call. Temporary files of ``replace_file`` begin with a dot.
_PARTS = frozenset(
    {
        *(META, TIMELINE, MERGED, VIDEO, PEAKS, CALLER_AUDIO, BOT_AUDIO, FRAMES, IMAGES),
        *CLIENT_REPLAYS.values(),
    }
)


def is_session(name: str) -> bool:
    """Return whether a name is the id of a session."""
    return _SESSION.fullmatch(name) is not None


def is_call(name: str) -> bool:
    """Return whether a name is the id of a call."""
    return _CALL.fullmatch(name) is not None


def session_folder(folder: Path, session_id: str) -> Path:
    """Return the folder of a session's recordings.

    Raises:
        MediaError: not the id of a session.
    """
    if not is_session(session_id):
        raise MediaError("not the id of a session: it has 32 hexadecimal digits in five groups")
    return folder / SESSIONS / session_id


def call_folder(folder: Path, session_id: str, call_id: str) -> Path:
    """Return the folder of the recording of one call.

    Raises:
        MediaError: not the id of a session, or not that of a call.
    """
    if not is_call(call_id):
        raise MediaError("not the id of a call: it has 32 hexadecimal digits")
    return session_folder(folder, session_id) / call_id


def segment_name(number: int) -> str:
    """Return the file name of a segment."""
    return f"{number:06}.flac"


def image_name(at_ms: int, place: int, media_type: str) -> str:
    """Return the file name of a picture of a turn: when it was committed, and its place among the turn's."""
    return f"{at_ms:09}-{place}.{_ENDINGS[media_type]}"


def image_facts(name: str) -> tuple[int, str]:
    """Return when the turn of a picture was committed, and the media type, from its file name.

    Raises:
        MediaError: not the name of a picture of a turn.
    """
    match = _IMAGE.fullmatch(name)
    if match is None:
        raise MediaError("not the name of a picture of a turn")
    types = {ending: media_type for media_type, ending in _ENDINGS.items()}
    return int(match[1]), types[match[2]]


@dataclass(frozen=True, slots=True)
class CallRecording:
    """Recording of one call on the disk.

    Attributes:
        path: its folder.
        session_id: its session.
        call_id: its call.
        meta: facts of the call.
        files: its files, through which they are read and written.
    """

    path: Path
    session_id: str
    call_id: str
    meta: dict[str, Any]
    files: CallFiles

    @property
    def segment_ms(self) -> int:
        """Length of its segments."""
        return int(self.meta["segment_ms"])

    def segments(self, side: str) -> dict[int, Path]:
        """Return the files of a side by their number; foreign files and links are left out."""
        folder = self.path / side
        found = ((_SEGMENT.fullmatch(name), folder / name) for name in self.files.names(folder))
        return {int(match[1]): each for match, each in found if match is not None}

    def pictures(self) -> list[tuple[int, Path]]:
        """Return the camera's pictures with their times in milliseconds, in order; links are left out."""
        folder = self.path / FRAMES
        found = ((_PICTURE.fullmatch(name), folder / name) for name in self.files.names(folder))
        return sorted((int(match[1]), each) for match, each in found if match is not None)

    def images(self) -> list[Path]:
        """Return the pictures of the caller's turns, in order; foreign files and links are left out."""
        folder = self.path / IMAGES
        return [folder / name for name in self.files.names(folder) if _IMAGE.fullmatch(name)]

    def timeline(self, *, most_bytes: int = MOST_JSON_BYTES) -> dict[str, Any]:
        """Return ``recording.json``; empty when a crash came before it was written.

        Raises:
            MediaError: it cannot be read, or is larger than ``most_bytes``.
        """
        path = self.path / TIMELINE
        return self.files.json(path, most_bytes=most_bytes) if self.files.has(path) else {}


def read_recording(
    path: Path, keys: RecordingKeys | None = None, objects: ObjectFiles | None = None
) -> CallRecording:
    """Return the recording in a folder, also one whose call was killed.

    Args:
        path: the folder.
        keys: of encrypted recordings; None for those of the environment.
        objects: its files, where they may have left the folder.

    Raises:
        ConfigError: the keys of the environment are wrong.
        RecordingKeyError: it is encrypted with another key.
        MediaError: there is none, or it is not one of this product's.
    """
    is_named = is_call(path.name) and is_session(path.parent.name)
    is_here = is_folder(path.parent) and is_folder(path)
    if not is_named or not (is_here or (objects is not None and not os.path.lexists(path))):
        raise MediaError(f"{path}: not the folder of a recorded call")
    files = CallFiles.of_call(path, path / META, keys, objects)
    meta = files.json(path / META)
    session_id, call_id, length = meta.get("session_id"), meta.get("call_id"), meta.get("segment_ms")
    if session_id != path.parent.name or call_id != path.name:
        raise MediaError(f"{path / META}: belongs to another call")
    if meta.get("version") != VERSION or not isinstance(length, int) or not 100 <= length <= 60_000:
        raise MediaError(f"{path / META}: another version of recordings")
    return CallRecording(path, session_id, call_id, meta, files)


def session_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of sessions; foreign ones and links are left out."""
    root = folder / SESSIONS
    if not is_folder(root):
        return
    for each in sorted(root.iterdir()):
        if is_session(each.name) and is_folder(each):
            yield each


def foreign_in(session: Path) -> Path | None:
    """Return something in the folder of a session that no recording has; None when there is nothing."""
    for call in session.iterdir():
        if call.name == PINNED and is_file(call):
            continue
        if not (is_call(call.name) and is_folder(call)):
            return call
        for part in call.iterdir():
            is_known = part.name in _PARTS or (part.name.startswith(".") and is_file(part))
            if not is_known or part.is_symlink():
                return part
    return None
