"""Routes of the recordings of a session, for those who may read it (``session_api`` adds who that is).

    GET /{id}/recordings                          recorded calls, oldest first
    GET /{id}/recordings/{call}                   one call: its events, and the peaks of both sides over time
    GET /{id}/recordings/{call}/replay.wav        both sides in stereo, also a part of it (``Range``)
    GET /{id}/recordings/{call}/replay.mp4        film of a call with a camera, likewise
    GET /{id}/recordings/{call}/frames/{at}.jpg   picture of the camera at this time, in milliseconds
    GET /{id}/recordings.zip                      all files of the session

Files are read by threads and sent at the pace of long answers (``http.read_pace``), so that a player or a
download does not delay calls. A reader that takes nothing is closed after ``stall_s``; a player requests the
rest again when it goes on. A file that is missing, foreign or a link is a 404. Reading one is a use of the
session, which postpones the end of its recordings (``recording.retention``).
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

from fastapi import APIRouter, Header, HTTPException, Request, Response
from fastapi.params import Depends
from loguru import logger

from parley.core.errors import MediaError
from parley.recording.library import (
    CHUNK_BYTES,
    RecordingSummaries,
    call_detail,
    picture_file,
    recordings_of,
    replay_file,
    zipped,
)
from parley.recording.retention import mark_used
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.read_pace import ReadPace

_T = TypeVar("_T")
NOT_THERE = "there is no such recording, or not yet"
RangeHeader = Annotated[str | None, Header(alias="range")]
# One range of bytes; more than one in a request are answered by the whole file, as RFC 9110 (14.2) permits.
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def add_recording_routes(
    router: APIRouter,
    folder: Path,
    *,
    in_use: Sequence[Depends],
    pace: ReadPace,
    client: Callable[[Request], str],
    stall_s: float,
) -> None:
    """Add the routes to those of a session.

    Args:
        router: of the sessions.
        folder: of the recordings.
        in_use: check that a client may read the session.
        pace: of long answers.
        client: returns the address of a client, for counting.
        stall_s: longest wait for a reader to receive a part of a file.
    """

    summaries = RecordingSummaries(folder)
    files = RecordingFiles(pace, client, stall_s=stall_s)

    @router.get("/{session_id}/recordings", dependencies=in_use)
    async def calls(request: Request, session_id: str) -> dict[str, object]:
        """Return the recorded calls of a session, oldest first."""
        with pace.take(client(request)):
            found, read_bytes = await asyncio.to_thread(summaries.of_session, session_id)
            await pace.read(client(request), read_bytes)
        return {"calls": [asdict(each) for each in found]}

    @router.get("/{session_id}/recordings.zip", dependencies=in_use)
    async def archive(request: Request, session_id: str) -> EventStream:
        """Stream all recordings of a session as a ZIP."""
        found = await asyncio.to_thread(recordings_of, folder, session_id)
        if not found:
            raise HTTPException(404, NOT_THERE)
        packed = zipped(found)
        return EventStream(
            _sent(packed, packed.close, pace, client(request)),
            stall_s=stall_s,
            media_type="application/zip",
            headers={"Content-Disposition": f'attachment; filename="{session_id}.zip"'},
        )

    @router.get("/{session_id}/recordings/{call_id}", dependencies=in_use)
    async def call(request: Request, session_id: str, call_id: str) -> Response:
        """Return the events of a recorded call and the peaks of both sides."""

        def made() -> str:
            return json.dumps(call_detail(folder, session_id, call_id))

        return await found_file(pace.made(client(request), made))

    @router.get("/{session_id}/recordings/{call_id}/replay.wav", dependencies=in_use)
    async def replay(
        request: Request, session_id: str, call_id: str, range_: RangeHeader = None
    ) -> EventStream:
        """Return a recorded call in stereo, the caller left; also a range of its bytes."""
        path = await found_file(asyncio.to_thread(replay_file, folder, session_id, call_id))
        return await files.send(request, path, "audio/wav", range_)

    @router.get("/{session_id}/recordings/{call_id}/replay.mp4", dependencies=in_use)
    async def film(
        request: Request, session_id: str, call_id: str, range_: RangeHeader = None
    ) -> EventStream:
        """Return the film of a recorded call with a camera; also a range of its bytes."""
        path = await found_file(asyncio.to_thread(replay_file, folder, session_id, call_id, film=True))
        return await files.send(request, path, "video/mp4", range_)

    @router.get("/{session_id}/recordings/{call_id}/frames/{at_ms}.jpg", dependencies=in_use)
    async def picture(request: Request, session_id: str, call_id: str, at_ms: int) -> Response:
        """Return the picture of the camera at a time of a recorded call."""
        path = await found_file(asyncio.to_thread(picture_file, folder, session_id, call_id, at_ms))
        with pace.take(client(request)):
            content = await found_file(asyncio.to_thread(path.read_bytes))
            await pace.read(client(request), len(content))
        return Response(content, media_type="image/jpeg")


class RecordingFiles:
    """Files of recordings, sent whole or in part at the pace of long answers.

    Args:
        pace: of long answers.
        client: returns the address of a client, for counting.
        stall_s: longest wait for a reader to receive a part of a file.
    """

    def __init__(self, pace: ReadPace, client: Callable[[Request], str], *, stall_s: float) -> None:
        self._pace = pace
        self._client = client
        self._stall_s = stall_s

    async def send(self, request: Request, path: Path, media_type: str, bounds: str | None) -> EventStream:
        """Return the answer with a file, or with the part of it that a ``Range`` header requests.

        Raises:
            HTTPException: 404, the file has gone; 416, there are no such bytes.
        """
        await asyncio.to_thread(mark_used, path.parent)
        file = await found_file(asyncio.to_thread(path.open, "rb"))
        size = os.fstat(file.fileno()).st_size
        try:
            span = _span(bounds, size)
        except HTTPException:
            file.close()
            raise
        first, last = span or (0, size - 1)
        headers = {"Accept-Ranges": "bytes", "Content-Length": str(last - first + 1)}
        if span is not None:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        return EventStream(
            _sent(_pieces(file, first, last - first + 1), file.close, self._pace, self._client(request)),
            stall_s=self._stall_s,
            media_type=media_type,
            status=200 if span is None else 206,
            headers=headers,
        )


async def found_file(made: Awaitable[_T]) -> _T:
    """Return a result about files that may be absent, foreign, or removed meanwhile.

    Raises:
        HTTPException: 404. The reason names files of this machine, so it is only logged.
    """
    try:
        return await made
    except (MediaError, OSError) as error:
        logger.debug(f"a recording was requested that is not there: {error}")
        raise HTTPException(404, NOT_THERE) from error


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
    pieces: Generator[bytes], close: Callable[[], None], pace: ReadPace, client: str
) -> AsyncGenerator[bytes, None]:
    """Yield pieces of a file, read in a thread, when they may be sent; ``close`` it afterwards."""
    reading: asyncio.Future[bytes] | None = None
    try:
        with pace.take(client):
            while True:
                reading = asyncio.ensure_future(asyncio.to_thread(next, pieces, b""))
                piece = await asyncio.shield(reading)
                if not piece:
                    return
                await pace.read(client, len(piece))
                yield piece
    finally:
        if reading is not None:
            # The reader has left while the thread reads: the file is closed after it.
            await asyncio.wait({reading})
        await asyncio.to_thread(close)
