"""Recordings in a bucket of S3, or of a server that speaks its protocol.

An object has the name that its file has below ``recording.folder``: ``PREFIX/sessions/SESSION/CALL/...``. A
call is in the bucket when its ``meta.json`` is, which is uploaded last. Credentials are those of AWS's own
variables of the environment (``AWS_ACCESS_KEY_ID``, ...), or of the machine's role.

Slow or away: a request fails with an ``ObjectStoreError`` (``runtime.object_store``). Everything here blocks,
without holding the interpreter.
"""

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from parley.recording.folder import META, PINNED, SESSIONS, is_call, is_session
from parley.recording.settings import S3Settings
from parley.runtime.object_store import LIMITS, ObjectStore, RequestLimits, StoredObject, check_package

OPTION = "recording.s3"
# Read together: a player reads on from where it is.
BLOCK_BYTES = 1_048_576
# Files uploaded at a time.
AT_ONCE = 4


@dataclass(slots=True)
class StoredSession:
    """Objects of a session.

    Attributes:
        calls: objects of each call, by their names in its folder.
        is_pinned: it has an object ``pinned``.
    """

    calls: dict[str, dict[str, StoredObject]] = field(default_factory=dict)
    is_pinned: bool = False

    @property
    def files(self) -> int:
        """Number of objects."""
        return sum(map(len, self.calls.values()))

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(each.size for call in self.calls.values() for each in call.values())

    @property
    def written_s(self) -> float:
        """Time of the newest one."""
        times = [each.modified_ns for call in self.calls.values() for each in call.values()]
        return max(times, default=0) / 1e9


class StoredObjects(Protocol):
    """Objects that are read by their names; both methods raise ObjectStoreError."""

    def objects(self, key: str, /) -> Iterator[tuple[str, StoredObject]]: ...

    def read(self, key: str, start: int, end: int, /) -> bytes: ...


class CallObjects:
    """Objects of one call.

    Args:
        store: bucket.
        key: beginning of their names, with a slash at the end.
        known: the objects, where they were listed already.
    """

    def __init__(
        self, store: StoredObjects, key: str, known: Mapping[str, StoredObject] | None = None
    ) -> None:
        self._store, self._key, self._known = store, key, known

    def listed(self) -> Mapping[str, StoredObject]:
        """Return the objects by their names; listed once.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        if self._known is None:
            self._known = dict(self._store.objects(self._key))
        return self._known

    def open(self, name: str) -> BinaryIO:
        """Return a reader of an object.

        Raises:
            FileNotFoundError: there is none.
            ObjectStoreError: the bucket does not answer.
        """
        found = self.listed().get(name)
        if found is None:
            raise FileNotFoundError(name)
        return io.BufferedReader(_ObjectReader(self._store, self._key + name, found.size), BLOCK_BYTES)


class RecordingBucket:
    """Bucket with recordings. Any thread may use it.

    Args:
        settings: of the deployment.
        limits: of a request.

    Raises:
        ConfigError: the package is not installed, or a setting is none of S3.
    """

    def __init__(self, settings: S3Settings, limits: RequestLimits = LIMITS) -> None:
        self._store = ObjectStore(
            settings.bucket,
            endpoint=settings.endpoint,
            region=settings.region,
            option=OPTION,
            limits=limits,
        )
        self._prefix = f"{settings.prefix}/" if settings.prefix else ""

    def call(self, session_id: str, call_id: str) -> CallObjects:
        """Return the objects of a call, which are listed when they are needed."""
        return CallObjects(self, f"{SESSIONS}/{session_id}/{call_id}/")

    def calls(self, session_id: str) -> dict[str, CallObjects]:
        """Return the calls of a session that are in the bucket, by their ids.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        found = self.sessions(session_id).get(session_id, StoredSession())
        return {
            call_id: CallObjects(self, f"{SESSIONS}/{session_id}/{call_id}/", known)
            for call_id, known in found.calls.items()
            if META in known
        }

    def sessions(self, only: str = "") -> dict[str, StoredSession]:
        """Return the sessions in the bucket, or only one; other objects are left out.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        sessions: dict[str, StoredSession] = {}
        for name, found in self.objects(f"{SESSIONS}/{only}/" if only else f"{SESSIONS}/"):
            session_id, _, below = (f"{only}/{name}" if only else name).partition("/")
            call_id, _, file = below.partition("/")
            if not is_session(session_id):
                continue
            if below == PINNED:
                sessions.setdefault(session_id, StoredSession()).is_pinned = True
            elif is_call(call_id) and file:
                session = sessions.setdefault(session_id, StoredSession())
                session.calls.setdefault(call_id, {})[file] = found
        return sessions

    def objects(self, key: str) -> Iterator[tuple[str, StoredObject]]:
        """Return what is below a name that ends with a slash: the rest of its name, and its facts.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        return self._store.objects(self._prefix + key)

    def put(self, key: str, path: Path) -> None:
        """Write a file as an object, over one that is there.

        Raises:
            OSError: the file cannot be read.
            ObjectStoreError: the bucket does not answer.
        """
        self._store.put_file(self._prefix + key, path)

    def put_bytes(self, key: str, content: bytes) -> None:
        """Write an object at once, over one that is there.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        self._store.put(self._prefix + key, content)

    def read(self, key: str, start: int, end: int) -> bytes:
        """Return bytes of an object.

        Raises:
            ObjectStoreError: the bucket does not answer, or the object is gone.
        """
        return self._store.read(self._prefix + key, start, end)

    def remove_file(self, key: str) -> None:
        """Remove an object, if it is there.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        self._store.remove([self._prefix + key])

    def remove(self, session_id: str, call_id: str = "") -> StoredSession:
        """Remove all objects of a session, or of one of its calls; return what they were.

        Raises:
            ObjectStoreError: the bucket does not answer; some may be removed.
        """
        key = f"{SESSIONS}/{session_id}/" + (f"{call_id}/" if call_id else "")
        found = dict(self.objects(key))
        # The file that makes it a call goes first: no reader finds half of it.
        names = sorted(found, key=lambda name: not name.endswith(META))
        self._store.remove([self._prefix + key + name for name in names])
        removed = StoredSession()
        for name, each in found.items():
            if not call_id and name == PINNED:
                removed.is_pinned = True
                continue
            of_call, _, file = (f"{call_id}/{name}" if call_id else name).partition("/")
            removed.calls.setdefault(of_call, {})[file] = each
        return removed


class _ObjectReader(io.RawIOBase):
    """Object that is read by ranges."""

    def __init__(self, store: StoredObjects, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        found = self._store.read(self._key, self._at, end)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def check_bucket() -> None:
    """Check that the package for buckets is installed.

    Raises:
        ConfigError: it is not.
    """
    check_package(OPTION)
