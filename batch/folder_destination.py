"""Folder as the place of a job's outputs: files, and a manifest in SQLite; a lock of the kernel holds it."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from parley.batch.destination import PARKED_FILE, OutputError, ParkedItem, UnusableNameError
from parley.batch.manifest import ItemState, Manifest, hold_folder
from parley.batch.sources import BatchSource
from parley.batch.transcript import Transcription, sweep_outputs, write_transcription
from parley.runtime.atomic_file import replace_file

_TAKEN = "the outputs of another source have the place of its own"
# Failures of one source's outputs; others are the disk's.
UNUSABLE_NAME = {
    errno.ENAMETOOLONG: "its name is too long for the names of its outputs",
    errno.EEXIST: _TAKEN,
    errno.ENOTDIR: _TAKEN,
}


@contextmanager
def folder_destination(folder: Path) -> Iterator["FolderDestination"]:
    """Hold a folder for this run.

    Raises:
        ConfigError: another run holds it, it cannot be written, or its manifest is none.
    """
    with hold_folder(folder) as lock, closing(Manifest(folder)) as manifest:
        yield FolderDestination(folder, manifest, lock)


class FolderDestination:
    """Folder that this process holds (``destination.Destination``).

    Args:
        folder: of the outputs.
        manifest: in it.
        lock: descriptor that workers inherit, so that the folder is held while one lives.
    """

    def __init__(self, folder: Path, manifest: Manifest, lock: int) -> None:
        self.location = str(folder)
        self.descriptors: tuple[int, ...] = (lock,)
        self._folder = folder
        self._manifest = manifest

    def belong_to(self, root: str) -> None:
        self._manifest.belong_to(root)

    def plan(
        self, items: Sequence[tuple[BatchSource, str]], *, retry_parked: bool = False
    ) -> list[BatchSource]:
        to_do = self._manifest.plan(items, retry_parked=retry_parked)
        sweep_outputs(self._folder, [source.name for source in to_do])
        return to_do

    def replaced(self, name: str) -> Mapping[str, str]:
        # A file takes the place of the one before.
        return {}

    def check_held(self) -> None:
        # The kernel holds the lock until this process ends.
        return

    def finish(self, name: str, *, audio_ms: int, cpu_ms: int) -> None:
        self._manifest.finish(name, audio_ms=audio_ms, cpu_ms=cpu_ms)

    def fail(self, name: str, reason: str, *, most_tries: int) -> bool:
        return self._manifest.fail(name, reason, most_tries=most_tries)

    def parked(self) -> list[ParkedItem]:
        return self._manifest.parked()

    def done(self) -> int:
        return self._manifest.count(ItemState.DONE)

    def write_parked(self, content: bytes) -> None:
        replace_file(self._folder / PARKED_FILE, content)


class FolderWriter:
    """Writer of files (``destination.OutputWriter``).

    Args:
        folder: of the outputs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, found: Transcription, replaced: Mapping[str, str], session: bytes | None = None) -> None:
        try:
            write_transcription(self._folder, found, session)
        except OSError as error:
            if error.errno in UNUSABLE_NAME:
                raise UnusableNameError(UNUSABLE_NAME[error.errno]) from error
            raise OutputError(f"{self._folder}: cannot be written: {error.strerror or error}") from error
