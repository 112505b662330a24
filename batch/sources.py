"""Find what a batch job transcribes: audio files and recorded calls below a folder, or one of them.

A source's name is its path below the given folder; it names the outputs. A folder that is a recorded call
(``recording.folder``) is one source, whose two sides are speakers. Other folders are searched. Links are
sources that are refused, so that they are reported; links to folders are not followed. Nothing is opened
here. ``s3.sources`` does the same in a bucket.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from parley.batch.settings import BatchSettings
from parley.core.errors import ConfigError, MediaError
from parley.recording.at_rest import RecordingKeyError
from parley.recording.call_files import is_file
from parley.recording.folder import BOT_AUDIO, CALLER_AUDIO, META, CallRecording, read_recording
from parley.recording.merge import is_over

SUFFIXES = frozenset(
    ".3gp .aac .aif .aiff .amr .caf .flac .m4a .mka .mkv .mov .mp3 .mp4 .oga .ogg .opus .w64 .wav "
    ".webm".split()
)


class SourceKind(StrEnum):
    """Kind of a source."""

    FILE = "file"
    CALL = "call"
    # In a bucket (``s3.sources``).
    OBJECT = "object"
    STORED_CALL = "stored_call"


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Audio to transcribe.

    Attributes:
        name: path below the folder of the job, with slashes; names the outputs.
        location: path of the file, or of the folder of the call; address of those in a bucket.
        kind: of the source.
        version: changes with the content: digest of size and time of modification; of an object, its tag.
        written_us: time when it was written, microseconds since the Unix epoch.
    """

    name: str
    location: str
    kind: SourceKind
    version: str
    written_us: int = 0

    def key(self, settings: BatchSettings) -> str:
        """Return the digest of all that decides the transcript."""
        # An option that is off leaves the keys of earlier releases as they are.
        unused = {"limits"} if settings.sessions else {"limits", "sessions"}
        made_by = settings.model_dump(mode="json", exclude=unused)
        facts = json.dumps([self.name, self.version, made_by], sort_keys=True)
        return hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()


def root_of(given: Path) -> str:
    """Return the folder below which the sources have their names."""
    return str(given.resolve() if given.is_dir() else given.absolute().parent.resolve())


def find_sources(given: Path) -> list[BatchSource]:
    """Return the sources in the order of their names.

    Raises:
        ConfigError: there is no such file or folder, or nothing in it is audio.
    """
    if not os.path.lexists(given):
        raise ConfigError(f"{given}: there is no such file or folder")
    if not given.is_dir():
        return [_file(given, _name(given, given))]
    found = sorted(_walk(given, given), key=lambda source: source.name)
    if not found:
        raise nothing_found(str(given))
    return found


def nothing_found(place: str) -> ConfigError:
    """Return the error of a place without sources."""
    known = ", ".join(sorted(suffix[1:] for suffix in SUFFIXES))
    return ConfigError(f"{place}: neither audio files ({known}) nor recorded calls that are over")


def _walk(root: Path, folder: Path) -> Iterator[BatchSource]:
    if is_file(folder / META):
        # One that is not readable as a recording is searched like any folder.
        with suppress(MediaError, OSError):
            try:
                recording = read_recording(folder.absolute())
                # One that is still being recorded belongs to the next run.
                if is_over(recording):
                    yield _call(recording, _name(root, folder))
            except RecordingKeyError:
                # Refused as a source, so that it is reported.
                name, version = _name(root, folder), _version([folder / META])
                yield BatchSource(name, str(folder), SourceKind.CALL, version, _written_us(folder / META))
            return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:
        # Removed meanwhile, as retention does.
        entries = []
    except OSError as error:
        if folder == root:
            raise ConfigError(f"{folder}: cannot be read: {error.strerror}") from error
        # Refused as a source, so that it is reported.
        yield _file(folder, _name(root, folder))
        return
    for entry in entries:
        path = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, path)
        elif path.suffix.lower() in SUFFIXES:
            yield _file(path, _name(root, path))


def _name(root: Path, path: Path) -> str:
    name = root.absolute().name if path == root else path.relative_to(root).as_posix()
    # Bytes that are no UTF-8 are surrogates in a path, which no output can hold.
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _file(path: Path, name: str) -> BatchSource:
    return BatchSource(name, str(path), SourceKind.FILE, _version([path]), _written_us(path))


def _call(recording: CallRecording, name: str) -> BatchSource:
    files = [path for side in (CALLER_AUDIO, BOT_AUDIO) for path in recording.segments(side).values()]
    written_us = _written_us(recording.path / META)
    return BatchSource(name, str(recording.path), SourceKind.CALL, _version(sorted(files)), written_us)


def _written_us(path: Path) -> int:
    with suppress(OSError):
        return os.lstat(path).st_mtime_ns // 1_000
    return 0


def _version(paths: list[Path]) -> str:
    """Return a digest of sizes and times of modification; a file that is gone counts as well."""
    digest = hashlib.sha256()
    for path in paths:
        facts = "-"
        with suppress(OSError):
            status = os.lstat(path)
            facts = f"{stat.S_IFMT(status.st_mode)} {status.st_size} {status.st_mtime_ns}"
        digest.update(f"{path.name} {facts}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
