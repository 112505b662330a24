"""Pins of sessions: their recordings stay, whatever their age and however full the disk is.

A pin is an empty file ``pinned`` in the folder of a session, and an object of that name next to its objects
in a bucket, so that every process which removes recordings sees it (``recording.retention``). Deleting the
session removes it too. Where calls move to a bucket, a session is pinned in both places: retention by hand
looks at the folder alone, and another machine at the bucket. Everything here blocks.
"""

import os
from pathlib import Path

from parley.core.errors import MediaError
from parley.recording.call_files import is_file, is_folder
from parley.recording.folder import PINNED, SESSIONS, is_call, session_folder
from parley.recording.objects import RecordingBucket, StoredSession


class Pins:
    """Pins of the sessions of a folder. Any thread may use it.

    Args:
        folder: of the recordings.
        bucket: to which finished calls move; None: they stay.
    """

    def __init__(self, folder: Path, bucket: RecordingBucket | None = None) -> None:
        self._folder, self._bucket = folder, bucket

    def has(self, session_id: str) -> bool:
        """Return whether a session is pinned.

        Raises:
            MediaError: it has no recordings.
            ObjectStoreError: the bucket does not answer.
        """
        stored = self._checked(session_id)
        return stored.is_pinned or is_file(session_folder(self._folder, session_id) / PINNED)

    def add(self, session_id: str) -> None:
        """Pin a session; one that is pinned stays so.

        Raises:
            MediaError: it has no recordings, or the disk refuses.
            ObjectStoreError: the bucket does not answer.
        """
        self._checked(session_id)
        if self._bucket is not None:
            self._bucket.put_bytes(_key(session_id), b"")
        path = session_folder(self._folder, session_id) / PINNED
        try:
            if is_folder(path.parent):
                # Never through a link.
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600))
        except FileNotFoundError:
            # The folder went meanwhile, with the session or because its last call has moved.
            pass
        except OSError as error:
            raise MediaError(f"{path}: cannot be written: {error.strerror or error}") from error
        try:
            self._checked(session_id)
        except MediaError:
            # The session was deleted meanwhile: a pin must not be all that is left of it.
            self.remove(session_id)
            raise

    def remove(self, session_id: str) -> None:
        """Unpin a session; one that is not pinned is no failure.

        Raises:
            MediaError: not the id of a session, or the disk refuses.
            ObjectStoreError: the bucket does not answer.
        """
        path = session_folder(self._folder, session_id) / PINNED
        try:
            if is_folder(path.parent):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise MediaError(f"{path}: cannot be removed: {error.strerror or error}") from error
        if self._bucket is not None:
            self._bucket.remove_file(_key(session_id))

    def _checked(self, session_id: str) -> StoredSession:
        """Return what the bucket has of a session that has recordings, there or in the folder."""
        path, stored = session_folder(self._folder, session_id), StoredSession()
        if self._bucket is not None:
            stored = self._bucket.sessions(session_id).get(session_id, stored)
        if not stored.calls and not _has_calls(path):
            raise MediaError("there are no recordings of this session")
        return stored


def _has_calls(path: Path) -> bool:
    try:
        return is_folder(path) and any(is_call(each.name) for each in path.iterdir())
    except FileNotFoundError:
        return False


def _key(session_id: str) -> str:
    return f"{SESSIONS}/{session_id}/{PINNED}"
