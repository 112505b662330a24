"""Transcript of one source, and its three files: JSON, WebVTT and plain text.

The JSON is written last: a source whose JSON exists with the key of its item is done. All three replace what
an earlier run wrote, each at once (``runtime.atomic_file``).
"""

import html
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from parley.batch.settings import RecogniserChoice
from parley.core.errors import MediaError
from parley.core.strict_model import StrictModel
from parley.runtime.atomic_file import replace_file

VERSION = 1
JSON, VTT, TXT = ".json", ".vtt", ".txt"
# With ``--sessions`` (``session_export``).
SESSION = ".session.jsonl"
SUFFIXES = (VTT, TXT, SESSION, JSON)
# The beginning of a JSON file holds its key.
KEY_BYTES = 200


class TranscribedWord(StrictModel):
    """Word of a segment."""

    text: str = Field(description="lower case, without punctuation")
    start_ms: int = Field(description="from the beginning of the audio")
    end_ms: int
    confidence: float = Field(description="0..1; 1.0 from an engine without confidences")
    estimated: bool = Field(description="the times are estimated by the letters of the words")


class SegmentProsody(StrictModel):
    """Manner of speaking in a segment; null where it is not known yet."""

    stress: float | None = Field(description="tension, 0..1")
    pitch_hz: float | None = Field(description="median fundamental frequency")
    pitch_offset_semitones: float | None = Field(description="against the speaker's own speech so far")
    level_offset_db: float | None = Field(description="against the speaker's own speech so far")
    tempo_offset: float | None = Field(description="logarithm, against the speaker's own speech so far")


class TranscriptSegment(StrictModel):
    """Speech of one side between two pauses."""

    start_ms: int = Field(description="from the beginning of the audio")
    end_ms: int
    speaker: str | None = Field(description="null where speakers are not distinguished")
    text: str = Field(description="as the recogniser writes it")
    confidence: float = Field(description="mean of the words")
    words: tuple[TranscribedWord, ...]
    prosody: SegmentProsody | None = None


class Transcription(StrictModel):
    """Content of the JSON file."""

    key: str = Field(description="digest of the source's name, size and time and of all settings")
    version: int = VERSION
    source: str = Field(description="name below SOURCE")
    duration_ms: int
    speech_ms: int = Field(description="audio that was transcribed, of all channels; the rest is silence")
    channels: str = Field(description="mixed or split")
    recogniser: RecogniserChoice
    segments: tuple[TranscriptSegment, ...]


def output_paths(folder: Path, name: str) -> dict[str, Path]:
    """Return the files of a source by their suffix."""
    return {suffix: folder / f"{name}{suffix}" for suffix in SUFFIXES}


def write_transcription(folder: Path, found: Transcription, session: bytes | None = None) -> None:
    """Write the files, with those of a session where there are any.

    Raises:
        OSError: one cannot be written.
    """
    paths = output_paths(folder, found.source)
    for suffix, content in contents(found, session).items():
        replace_file(paths[suffix], content)


def contents(found: Transcription, session: bytes | None = None) -> dict[str, bytes]:
    """Return what the outputs hold by their suffix, in the order in which they are written: the JSON last."""
    files = {VTT: as_vtt(found).encode(), TXT: as_text(found).encode()}
    if session is not None:
        files[SESSION] = session
    return files | {JSON: f"{found.model_dump_json(indent=1)}\n".encode()}


def sweep_outputs(folder: Path, names: Iterable[str]) -> None:
    """Remove the temporary files that a run which was killed has left of the outputs of these sources.

    Each folder is read once: a job may have many sources in one.
    """
    expected: dict[Path, set[str]] = {}
    for name in names:
        for path in output_paths(folder, name).values():
            expected.setdefault(path.parent, set()).add(path.name)
    for parent, outputs in expected.items():
        with suppress(FileNotFoundError, NotADirectoryError):
            for left in list(os.scandir(parent)):
                # ``replace_file`` adds a dot before the name, and another and random letters after it.
                if left.name.startswith(".") and left.name[1:].rpartition(".")[0] in outputs:
                    os.unlink(left.path)


def written_key(folder: Path, name: str) -> str | None:
    """Return the key of a source's JSON file; None without one that was written by a job."""
    try:
        with output_paths(folder, name)[JSON].open("rb") as file:
            head = file.read(KEY_BYTES)
    except (OSError, ValueError):
        return None
    return key_in(head)


def key_in(head: bytes) -> str | None:
    """Return the key in the first ``KEY_BYTES`` of a JSON file; None when no job has written it."""
    _, found, after = head.partition(b'"key": "')
    return after.split(b'"')[0].decode("ascii", "replace") if found else None


def as_vtt(found: Transcription) -> str:
    """Return the segments as WebVTT, with the speakers as voices."""
    cues = ["WEBVTT"]
    for segment in found.segments:
        voice = "" if segment.speaker is None else f"<v {html.escape(segment.speaker, quote=False)}>"
        end_ms = max(segment.end_ms, segment.start_ms + 1)
        times = f"{clock(segment.start_ms)} --> {clock(end_ms)}"
        cues.append(f"{times}\n{voice}{html.escape(segment.text, quote=False)}")
    return "\n\n".join(cues) + "\n"


def as_text(found: Transcription) -> str:
    """Return a line for each stretch of one speaker, with its time."""
    return "".join(f"{line}\n" for line in _lines(found.segments))


def _lines(segments: tuple[TranscriptSegment, ...]) -> Iterator[str]:
    speaker, line = None, ""
    for segment in segments:
        if line and segment.speaker is not None and segment.speaker == speaker:
            line += f" {segment.text}"
            continue
        if line:
            yield line
        speaker = segment.speaker
        who = "" if speaker is None else f"{speaker}: "
        line = f"[{clock(segment.start_ms).partition('.')[0]}] {who}{segment.text}"
    if line:
        yield line


def clock(at_ms: int) -> str:
    """Return a time as hours, minutes, seconds and milliseconds."""
    seconds, ms = divmod(at_ms, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{ms:03}"


def read_transcription(path: Path) -> Transcription:
    """Return the content of a JSON file.

    Raises:
        MediaError: it cannot be read, or holds something else.
    """
    try:
        return Transcription.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise MediaError(f"{path}: not a transcription: {type(error).__name__}") from error
