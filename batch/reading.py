"""Read the audio of one source after the other, in a worker: files, recorded calls, and those in a bucket.

An object is copied to a temporary file without a name, which is gone with the process, and is decoded like a
file. It must still have the tag that it had when the job was planned. A refused object is a failure of that
source when its bucket answers otherwise; a bucket that is gone, or does not answer, is one of the job
(``ObjectStoreError``).
"""

import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import IO

import numpy as np

from parley.batch.decoding import EMPTY, TOO_LARGE, AudioFileDecoder, RefusedSource
from parley.batch.destination import OutputError
from parley.batch.s3.address import ObjectAddress
from parley.batch.settings import GB, RATE_HZ, FileLimits
from parley.batch.sources import SourceKind
from parley.core.media import float_to_pcm16
from parley.recording.folder import CallRecording, read_recording
from parley.recording.merge import side_blocks
from parley.recording.objects import CallObjects
from parley.runtime.object_store import (
    ObjectChangedError,
    ObjectDeniedError,
    ObjectMissingError,
    ObjectStore,
)

CALL_BLOCK_MS = 10_000
CALL_SIDES = ("caller", "agent")
# Read from a bucket in one request.
PART_BYTES = 8_388_608
OPTION = "SOURCE"
# Refusals that concern one object; others, such as ``ExpiredToken``, concern all.
_OF_ONE_OBJECT = frozenset({"", "AccessDenied", "InvalidObjectState"})


class SourceReader:
    """Reader for one thread.

    Args:
        limits: bounds of a source.
        on_progress: called while a source is copied.
    """

    def __init__(self, limits: FileLimits, on_progress: Callable[[], None]) -> None:
        self._limits = limits
        self._on_progress = on_progress
        self._decoder = AudioFileDecoder(limits)
        self._stores: dict[str, ObjectStore] = {}
        self._cpu_ms = 0

    @property
    def cpu_ms(self) -> int:
        """Processor time of other processes for the last source."""
        return self._cpu_ms

    def close(self) -> None:
        """End the decoder."""
        self._decoder.close()

    def sides(self, kind: SourceKind) -> tuple[str, ...]:
        """Return the names of the speakers whose sides are channels; empty where that is not known."""
        return CALL_SIDES if kind in (SourceKind.CALL, SourceKind.STORED_CALL) else ()

    def blocks(self, kind: SourceKind, location: str, version: str) -> Generator[np.ndarray]:
        """Yield the audio of a source: int16, (channels, samples) each, at ``RATE_HZ``.

        Raises:
            RefusedSource: it cannot be transcribed.
            MediaError: so it is, for a recorded call.
            OSError: it cannot be read.
            ObjectStoreError: the bucket is gone, or does not answer.
            OutputError: there is no space for a copy.
        """
        self._cpu_ms = 0
        match kind:
            case SourceKind.FILE:
                with closing(self._decoder.blocks(Path(location))) as blocks:
                    yield from blocks
                self._cpu_ms = self._decoder.cpu_ms
            case SourceKind.CALL:
                yield from _call_blocks(read_recording(Path(location)))
            case SourceKind.OBJECT:
                yield from self._object_blocks(location, version)
            case SourceKind.STORED_CALL:
                yield from self._stored_call_blocks(location)

    def _object_blocks(self, location: str, tag: str) -> Generator[np.ndarray]:
        with tempfile.TemporaryFile() as file:
            self._copy(location, tag, file)
            with closing(self._decoder.blocks_of(file.fileno())) as blocks:
                yield from blocks
        self._cpu_ms = self._decoder.cpu_ms

    def _copy(self, location: str, tag: str, file: IO[bytes]) -> None:
        address = ObjectAddress.parse(location, option=OPTION)
        store = self._store(address.bucket)
        size, most_bytes = 0, self._decoder.most_bytes
        while size <= most_bytes:
            try:
                part = store.read(address.prefix, size, size + PART_BYTES, tag=tag)
            except (ObjectMissingError, ObjectChangedError) as error:
                raise RefusedSource("it was written or removed during the run; run it again") from error
            except ObjectDeniedError as error:
                raise _refusal(store, address, error) from error
            try:
                file.write(part)
            except OSError as error:
                # Every later copy would fail alike.
                where = tempfile.gettempdir()
                raise OutputError(f"{where}: cannot be written: {error.strerror}") from error
            size += len(part)
            self._on_progress()
            if len(part) < PART_BYTES:
                break
        if not size:
            raise RefusedSource(EMPTY)
        if size > most_bytes:
            raise RefusedSource(TOO_LARGE.format(gb=most_bytes / GB))
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)

    def _stored_call_blocks(self, location: str) -> Generator[np.ndarray]:
        address = ObjectAddress.parse(location, option=OPTION)
        store = self._store(address.bucket)
        try:
            objects = CallObjects(store, f"{address.prefix}/")
            # A path that is on no disk: its files are the objects.
            path = Path(os.devnull) / address.prefix
            yield from _call_blocks(read_recording(path, objects=objects))
        except (ObjectMissingError, ObjectChangedError) as error:
            raise RefusedSource("it was written or removed during the run; run it again") from error
        except ObjectDeniedError as error:
            raise _refusal(store, address, error) from error

    def _store(self, bucket: str) -> ObjectStore:
        if bucket not in self._stores:
            address = ObjectAddress(bucket, "")
            self._stores[bucket] = address.open(option=OPTION, retry_s=self._limits.s3_retry_s)
        return self._stores[bucket]


def _refusal(store: ObjectStore, address: ObjectAddress, error: ObjectDeniedError) -> Exception:
    """Return the failure of one source whose bucket answers otherwise, else that of the bucket."""
    if error.code not in _OF_ONE_OBJECT:
        return error
    try:
        next(store.objects(f"{address.prefix}/"), None)
    except ObjectDeniedError:
        return error
    return RefusedSource(f"S3 denies access to this object (403 {error.code or 'Forbidden'})")


def _call_blocks(recording: CallRecording) -> Generator[np.ndarray]:
    for block in side_blocks(recording, RATE_HZ, CALL_BLOCK_MS):
        yield np.stack([np.frombuffer(float_to_pcm16(side), "<i2") for side in block])
