"""Files of one recorded call: the one way in which they are read and written, encrypted or not.

A call is encrypted as a whole: its ``meta.json``, which is written first, decides it. A file that is not
encrypted in the folder of a call that is does not belong to it.

Everything here blocks.
"""

import errno
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from parley.core.errors import MediaError
from parley.recording.at_rest import MAGIC, EncryptedFile, RecordingKeys, encrypted
from parley.runtime.atomic_file import replace_file

# Of a JSON file: a recording of a day is below it.
MOST_JSON_BYTES = 64_000_000
# Read and sent together.
CHUNK_BYTES = 65_536


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder and not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Return whether a path is a file and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


class ObjectFacts(Protocol):
    """Facts of a file that is elsewhere: its time, and its stored size in bytes."""

    @property
    def modified_ns(self) -> int: ...

    @property
    def size(self) -> int: ...


class ObjectFiles(Protocol):
    """Files of a call that are not in its folder any more (``recording.objects``)."""

    def listed(self) -> Mapping[str, ObjectFacts]:
        """Return them by their names below the folder.

        Raises:
            MediaError: their store does not answer.
        """
        ...

    def open(self, name: str) -> BinaryIO:
        """Return a reader of one, which can be sought; raises as ``listed``, or FileNotFoundError."""
        ...


class CallFiles:
    """Files of one recorded call.

    Args:
        folder: of the call, ``.../SESSION/CALL``.
        keys: the call is encrypted, and these are the keys; None: it is not.
        objects: where its files are when they are not in the folder; None: nowhere.
    """

    def __init__(
        self, folder: Path, keys: RecordingKeys | None = None, objects: "ObjectFiles | None" = None
    ) -> None:
        self._folder, self._keys, self._objects = folder, keys, objects

    @classmethod
    def of_call(
        cls,
        folder: Path,
        meta: Path,
        keys: RecordingKeys | None = None,
        objects: "ObjectFiles | None" = None,
    ) -> "CallFiles":
        """Return the files of a call that is there, whose ``meta`` says whether they are encrypted.

        Args:
            folder: of the call.
            meta: its file of facts.
            keys: of recordings; None for those of the environment.
            objects: where its files are when they are not in the folder.

        Raises:
            ConfigError: the keys of the environment are wrong.
            MediaError: there is no such call.
        """
        plain = cls(folder, objects=objects)
        if not plain.has(meta):
            raise MediaError(f"{meta}: there is no such file")
        try:
            with plain.open(meta) as file:
                is_encrypted = file.read(len(MAGIC)) == MAGIC
        except OSError as error:
            raise _unreadable(meta, error) from error
        if not is_encrypted:
            return plain
        return cls(folder, RecordingKeys.from_environment() if keys is None else keys, objects)

    @property
    def folder(self) -> Path:
        """Folder of the call."""
        return self._folder

    def at(self, folder: Path) -> "CallFiles":
        """Return files of the same call, with the same keys, that are written in another folder."""
        return CallFiles(folder, self._keys)

    @property
    def are_encrypted(self) -> bool:
        """True when the call is encrypted."""
        return self._keys is not None

    def has(self, path: Path) -> bool:
        """Return whether there is such a file, which is no link; raises as ``ObjectFiles``."""
        return self.version(path) is not None

    def names(self, folder: Path) -> list[str]:
        """Return the names of the files in a folder of the call, sorted; links are left out.

        Raises:
            MediaError: as ``ObjectFiles``.
        """
        if self._are_here():
            with suppress(FileNotFoundError):
                found = folder.iterdir() if is_folder(folder) else iter(())
                names = sorted(each.name for each in found if is_file(each))
                if names or self._are_here():
                    return names
        if self._objects is None:
            return []
        beginning = f"{folder.relative_to(self._folder).as_posix()}/"
        below = [name for name in self._objects.listed() if name.startswith(beginning)]
        return sorted(name.removeprefix(beginning) for name in below)

    def version(self, path: Path) -> tuple[int, int] | None:
        """Return what changes with a file, its time and its stored size in bytes; None without the file."""
        with suppress(OSError):
            status = os.lstat(path)
            return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None
        if self._objects is None or self._are_here():
            return None
        found = self._objects.listed().get(self._name(path))
        return None if found is None else (found.modified_ns, found.size)

    def open(self, path: Path) -> BinaryIO:
        """Open a file for reading, also from any place in it; return it with its content as it was recorded.

        Raises:
            OSError: there is none, or it cannot be read.
            RecordingKeyError: its key is not here.
            AlteredFileError: it was altered.
        """
        raw = self._raw(path)
        if self._keys is None:
            return raw
        try:
            # Readers of audio need as much as they ask for.
            return io.BufferedReader(EncryptedFile(raw, self._keys, self._place(path)), CHUNK_BYTES)
        except BaseException:
            raw.close()
            raise

    def read(self, path: Path) -> bytes:
        """Return the content of a file; raises as ``open``."""
        with self.open(path) as file:
            return file.read()

    def json(self, path: Path, *, most_bytes: int = MOST_JSON_BYTES) -> dict[str, Any]:
        """Return the object in a JSON file.

        Raises:
            RecordingKeyError: its key is not here.
            MediaError: the file is missing, a link, larger than ``most_bytes``, altered, or no such object.
        """
        version = self.version(path)
        if version is None:
            raise MediaError(f"{path}: there is no such file")
        if version[1] > most_bytes:
            raise MediaError(f"{path}: over {most_bytes} bytes")
        try:
            found = json.loads(self.read(path), parse_constant=_refuse_constant)
        except (OSError, ValueError, RecursionError) as error:
            raise _unreadable(path, error) from error
        if not isinstance(found, dict):
            raise MediaError(f"{path}: not a JSON object")
        return found

    def write(self, path: Path, content: bytes) -> None:
        """Replace a small file (``runtime.atomic_file``).

        Raises:
            OSError: it cannot be written.
        """
        if self._keys is not None:
            content = encrypted(content, self._keys, self._place(path))
        replace_file(path, content)

    @contextmanager
    def replacing(self, path: Path) -> Iterator[BinaryIO]:
        """Yield a new file, seekable, that replaces a long one at the end; a failure leaves the old one.

        It has a temporary name, ``partial_name``, until then.

        Raises:
            OSError: it cannot be written.
        """
        temporary = partial_name(path)
        try:
            with temporary.open("w+b") as raw:
                if self._keys is None:
                    yield raw
                else:
                    file = EncryptedFile(raw, self._keys, self._place(path), is_new=True)
                    # The same methods; its type is that of files that a reader may also buffer.
                    yield file  # type: ignore[misc]
                    file.finish()
                raw.flush()
                os.fsync(raw.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def _raw(self, path: Path) -> BinaryIO:
        if is_file(path):
            try:
                return path.open("rb")
            except FileNotFoundError:
                # It has been uploaded since.
                if self._objects is None:
                    raise
        if self._objects is None or self._are_here():
            raise FileNotFoundError(errno.ENOENT, "there is no such file", str(path))
        return self._objects.open(self._name(path))

    def _are_here(self) -> bool:
        """Return whether the files are in the folder, which is removed as a whole when all are elsewhere."""
        return self._objects is None or is_folder(self._folder)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _place(self, path: Path) -> str:
        session_id, call_id = self._folder.parts[-2:]
        return f"{session_id}/{call_id}/{self._name(path)}"


def partial_name(path: Path) -> Path:
    """Return the name that a long file has while it is written; a run that is killed leaves it."""
    return path.with_name(f".{path.name}")


def _unreadable(path: Path, error: BaseException) -> MediaError:
    return MediaError(f"{path}: cannot be read: {type(error).__name__}")


def _refuse_constant(name: str) -> None:
    # Python reads NaN and Infinity, which no other reader of JSON does.
    raise ValueError(f"{name} is no number of JSON")
