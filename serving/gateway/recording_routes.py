"""Routes of the recordings of a session, for those who may read it (``session_api`` adds who that is).

    GET /{id}/recordings                          recorded calls, oldest first
    GET /{id}/recordings/{call}                   one call: its events, and the peaks of both sides over time
    GET /{id}/recordings/{call}/replay.wav        both sides in stereo, also a part of it (``Range``)
    GET /{id}/recordings/{call}/replay.mp4        film of a call with a camera, likewise
    GET /{id}/recordings/{call}/client-replay     recording that its client made itself, likewise
    GET /{id}/recordings/{call}/frames/{at}.jpg   picture of the camera at this time, in milliseconds
    GET /{id}/recordings/{call}/images/{name}     picture of a turn of the caller
    GET /{id}/recordings.zip                      all files of the session

Files are read by threads and sent at the pace of long answers (``http.read_pace``), so that a player or a
download does not delay calls. Encrypted recordings are decrypted on their way; one whose key is missing is a
409, and one that was altered a 500. A reader that takes nothing is closed after ``stall_s``; a player
requests the rest again when it goes on. A file that is missing, foreign or a link is a 404. Reading one is a
use of the session, which postpones the end of its recordings (``recording.retention``).

Parts follow RFC 9110. Safari plays nothing from a server that ignores ``Range``: it requests ``bytes=0-1``
first, reads the length of the file from ``Content-Range``, and then requests parts up to that length. Each
answer has an ``ETag``, by which ``If-Range`` gets the whole file when it was made anew meanwhile.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Protocol, TypeVar

from fastapi import APIRouter, Header, HTTPException, Request, Response
from fastapi.params import Depends
from loguru import logger

from parley.core.errors import MediaError
from parley.recording.at_rest import AlteredFileError, RecordingKeyError
from parley.recording.call_files import CHUNK_BYTES
from parley.recording.library import (
    RecordingSummaries,
    StoredFile,
    call_detail,
    client_replay_file,
    image_file,
    picture_file,
    recordings_of,
    replay_file,
    zipped,
)
from parley.recording.objects import RecordingBucket
from parley.recording.retention import RemovedRecordings, mark_used
from parley.recording.settings import RecordingSettings
from parley.recording.storage import RecordingStorage
from parley.recording.uploads import UploadCounts
from parley.runtime.object_store import ObjectStoreError
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.read_pace import ReadPace

_T = TypeVar("_T")
# Requests that may wait for a bucket at a time; others wait for them.
READERS = 8
NOT_THERE = "there is no such recording, or not yet"
RangeHeader = Annotated[str | None, Header(alias="range")]
# One range of bytes; more than one in a request are answered by the whole file, as RFC 9110 (14.2) permits.
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.IGNORECASE)


class SessionRecordings(Protocol):
    """Recordings of calls, which a session's readers may play and which are removed with it."""

    @property
    def folder(self) -> Path:
        """Folder that contains them."""
        ...

    @property
    def settings(self) -> RecordingSettings:
        """Settings of the deployment."""
        ...

    @property
    def bucket(self) -> RecordingBucket | None:
        """Bucket to which finished ones move; None for none."""
        ...

    @property
    def storage(self) -> RecordingStorage:
        """Figures about them, and retention by hand."""
        ...

    @property
    def uploads(self) -> UploadCounts | None:
        """Recordings that have moved to the bucket, and those that wait; None without one."""
        ...

    async def remove(self, session_id: str) -> RemovedRecordings:
        """Remove the recordings of a session.

        Raises:
            MediaError: they cannot be removed.
        """
        ...


def add_recording_routes(
    router: APIRouter,
    folder: Path,
    bucket: RecordingBucket | None = None,
    *,
    summaries: RecordingSummaries,
    in_use: Sequence[Depends],
    pace: ReadPace,
    client: Callable[[Request], str],
    stall_s: float,
) -> "RecordingFiles":
    """Add the routes to those of a session; return the reader of their files.

    Args:
        router: of the sessions.
        folder: of the recordings.
        bucket: to which they move; None: they stay.
        summaries: of the calls of the same folder and bucket.
        in_use: check that a client may read the session.
        pace: of long answers.
        client: returns the address of a client, for counting.
        stall_s: longest wait for a reader to receive a part of a file.
    """
    files = RecordingFiles(folder, bucket, pace, client, stall_s=stall_s)

    @router.get("/{session_id}/recordings", dependencies=in_use)
    async def calls(request: Request, session_id: str) -> dict[str, object]:
        """Return the recorded calls of a session, oldest first."""
        with pace.take(client(request)):
            found, read_bytes = await found_file(files.in_thread(summaries.of_session, session_id))
            await pace.read(client(request), read_bytes)
        return {"calls": [asdict(each) for each in found]}

    @router.get("/{session_id}/recordings.zip", dependencies=in_use)
    async def archive(request: Request, session_id: str) -> EventStream:
        """Stream all recordings of a session as a ZIP."""
        return await files.archive(request, session_id)

    @router.get("/{session_id}/recordings/{call_id}", dependencies=in_use)
    async def call(request: Request, session_id: str, call_id: str) -> Response:
        """Return the events of a recorded call and the peaks of both sides."""
        return await files.made(request, lambda: json.dumps(call_detail(folder, session_id, call_id, bucket)))

    @router.get("/{session_id}/recordings/{call_id}/replay.wav", dependencies=in_use)
    async def replay(
        request: Request, session_id: str, call_id: str, range_: RangeHeader = None
    ) -> EventStream:
        """Return a recorded call in stereo, the caller left; also a range of its bytes."""
        return await files.replay(request, session_id, call_id, range_)

    @router.get("/{session_id}/recordings/{call_id}/replay.mp4", dependencies=in_use)
    async def film(
        request: Request, session_id: str, call_id: str, range_: RangeHeader = None
    ) -> EventStream:
        """Return the film of a recorded call with a camera; also a range of its bytes."""
        return await files.replay(request, session_id, call_id, range_, film=True)

    @router.get("/{session_id}/recordings/{call_id}/client-replay", dependencies=in_use)
    async def client_replay(
        request: Request, session_id: str, call_id: str, range_: RangeHeader = None
    ) -> EventStream:
        """Return the recording that the client of a call made itself; also a range of its bytes."""
        found = files.in_thread(client_replay_file, folder, session_id, call_id, bucket)
        return await files.ranged(request, *await found_file(found), range_)

    _add_picture_routes(router, folder, bucket, files, in_use=in_use)
    return files


def _add_picture_routes(
    router: APIRouter,
    folder: Path,
    bucket: RecordingBucket | None,
    files: "RecordingFiles",
    *,
    in_use: Sequence[Depends],
) -> None:
    @router.get("/{session_id}/recordings/{call_id}/frames/{at_ms}.jpg", dependencies=in_use)
    async def picture(request: Request, session_id: str, call_id: str, at_ms: int) -> Response:
        """Return the picture of the camera at a time of a recorded call."""
        stored = await found_file(files.in_thread(picture_file, folder, session_id, call_id, at_ms, bucket))
        return await files.whole(request, stored, "image/jpeg")

    @router.get("/{session_id}/recordings/{call_id}/images/{name}", dependencies=in_use)
    async def image(request: Request, session_id: str, call_id: str, name: str) -> Response:
        """Return a picture of a turn of the caller in a recorded call."""
        found = await found_file(files.in_thread(image_file, folder, session_id, call_id, name, bucket))
        return await files.whole(request, *found)


class RecordingFiles:
    """Files of recordings, sent whole or in part at the pace of long answers.

    Args:
        folder: of the recordings.
        bucket: to which they move; None: they stay.
        pace: of long answers.
        client: returns the address of a client, for counting.
        stall_s: longest wait for a reader to receive a part of a file.
    """

    def __init__(
        self,
        folder: Path,
        bucket: RecordingBucket | None,
        pace: ReadPace,
        client: Callable[[Request], str],
        *,
        stall_s: float,
    ) -> None:
        self._folder, self._bucket = folder, bucket
        self._pace, self._client, self._stall_s = pace, client, stall_s
        # A bucket that answers nothing keeps threads of its own, which no call waits for.
        self._threads: Executor | None = None
        if bucket is not None:
            self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="recordings")

    async def in_thread(self, read: Callable[..., _T], *given: Any, **more: Any) -> _T:
        """Call a function that reads recordings, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(read, *given, **more))

    async def made(self, request: Request, make: Callable[[], str]) -> Response:
        """Return JSON that a function makes, in a thread.

        Raises:
            HTTPException: see ``found_file``.
        """
        client = self._client(request)
        with self._pace.take(client):
            body = (await found_file(self.in_thread(make))).encode()
            await self._pace.read(client, len(body))
        return Response(body, media_type="application/json")

    async def whole(self, request: Request, stored: StoredFile, media_type: str) -> Response:
        """Return a small file.

        Raises:
            HTTPException: see ``found_file``.
        """
        client = self._client(request)
        with self._pace.take(client):
            content = await found_file(self.in_thread(stored.read))
            await self._pace.read(client, len(content))
        return Response(content, media_type=media_type)

    async def archive(self, request: Request, session_id: str) -> EventStream:
        """Return all recordings of a session as a ZIP.

        Raises:
            HTTPException: see ``found_file``; 404 also when there are none.
        """
        found = await found_file(self.in_thread(recordings_of, self._folder, session_id, self._bucket))
        if not found:
            raise HTTPException(404, NOT_THERE)
        packed = zipped(found)
        return EventStream(
            _sent(packed, packed.close, self._pace, self._client(request), self._threads),
            stall_s=self._stall_s,
            media_type="application/zip",
            headers={"Content-Disposition": f'attachment; filename="{session_id}.zip"'},
        )

    async def replay(
        self, request: Request, session_id: str, call_id: str, bounds: str | None, *, film: bool = False
    ) -> EventStream:
        """Return the stereo file of a call, or its film, or the part that a ``Range`` header requests.

        Raises:
            HTTPException: see ``found_file``; 416, there are no such bytes.
        """
        given = self._folder, session_id, call_id, self._bucket
        stored = await found_file(self.in_thread(replay_file, *given, film=film))
        return await self.ranged(request, stored, "video/mp4" if film else "audio/wav", bounds)

    async def ranged(
        self, request: Request, stored: StoredFile, media_type: str, bounds: str | None
    ) -> EventStream:
        """Return a long file, or the part of it that a ``Range`` header requests; of ``HEAD`` no content.

        Raises:
            HTTPException: see ``found_file``; 416, there are no such bytes.
        """
        await self.in_thread(mark_used, stored.files.folder)
        # Before it is opened: what is made anew in between has a later tag, and no reader mixes the two.
        tag = _tag(await found_file(self.in_thread(stored.version)))
        file, size = await found_file(self.in_thread(stored.open))
        try:
            span = _span(bounds, size) if _holds(request.headers.get("if-range"), tag) else None
        except HTTPException:
            file.close()
            raise
        first, last = span or (0, size - 1)
        headers = {"Accept-Ranges": "bytes", "Content-Length": str(last - first + 1), "ETag": tag}
        if span is not None:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        pieces = _pieces(file, first, 0 if request.method == "HEAD" else last - first + 1)
        return EventStream(
            _sent(pieces, file.close, self._pace, self._client(request), self._threads),
            stall_s=self._stall_s,
            media_type=media_type,
            status=200 if span is None else 206,
            headers=headers,
        )


async def found_file(made: Awaitable[_T]) -> _T:
    """Return a result about files that may be absent, foreign, unreadable, or removed meanwhile.

    Raises:
        HTTPException: 409, its key is missing; 500, it was altered; 503, it is in a bucket that does not
            answer; 404 otherwise. That reason names files of this machine, so it is only logged.
    """
    try:
        return await made
    except RecordingKeyError as error:
        logger.warning(f"a recording was requested that cannot be read: {error}")
        raise HTTPException(409, str(error)) from error
    except AlteredFileError as error:
        logger.error(f"a recording was requested that was altered: {error}")
        raise HTTPException(500, str(error)) from error
    except ObjectStoreError as error:
        logger.warning(f"a recording was requested that is in S3: {error}")
        raise HTTPException(503, "recordings are in S3, which does not answer: try again later") from error
    except (MediaError, OSError) as error:
        logger.debug(f"a recording was requested that is not there: {error}")
        raise HTTPException(404, NOT_THERE) from error


def _tag(version: tuple[int, int]) -> str:
    """Return the ``ETag`` of a version of a file: a strong one, because files are replaced as a whole."""
    return f'"{version[0]:x}-{version[1]:x}"'


def _holds(if_range: str | None, tag: str) -> bool:
    """Return whether the condition of an ``If-Range`` header holds, by RFC 9110 (13.1.5).

    A date never does: no answer has a ``Last-Modified``.
    """
    return if_range is None or if_range.strip() == tag


def _span(bounds: str | None, size: int) -> tuple[int, int] | None:
    """Return the first and the last byte that a ``Range`` header requests, by RFC 9110 (14.1.2).

    None for the whole file: there is no such header, or one that has to be ignored.

    Raises:
        HTTPException: 416, there are no such bytes.
    """
    match = None if bounds is None else _RANGE.fullmatch(bounds.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        span = max(0, size - int(last)), size - 1
    else:
        span = int(first), min(int(last or size), size - 1)
    if span[0] > span[1]:
        raise HTTPException(416, "no such bytes", headers={"Content-Range": f"bytes */{size}"})
    return span


def _pieces(file: BinaryIO, start: int, count: int) -> Generator[bytes]:
    file.seek(start)
    while count > 0 and (piece := file.read(min(CHUNK_BYTES, count))):
        count -= len(piece)
        yield piece


async def _sent(
    pieces: Generator[bytes],
    close: Callable[[], None],
    pace: ReadPace,
    client: str,
    threads: Executor | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield pieces of a file, read in a thread, when they may be sent; ``close`` it afterwards."""
    loop = asyncio.get_running_loop()
    reading: asyncio.Future[bytes] | None = None
    try:
        with pace.take(client):
            while True:
                reading = asyncio.ensure_future(loop.run_in_executor(threads, next, pieces, b""))
                piece = await asyncio.shield(reading)
                if not piece:
                    return
                await pace.read(client, len(piece))
                yield piece
    finally:
        if reading is not None:
            # The reader has left while the thread reads: the file is closed after it.
            await asyncio.wait({reading})
        await loop.run_in_executor(threads, close)
