"""Routes of the recordings of a session, for those who may read it (``session_api`` adds who that is).

    GET /{id}/recordings                          recorded calls, oldest first
    GET /{id}/recordings/{call}                   one call: its events, and the peaks of both sides over time
    GET /{id}/recordings/{call}/replay.wav        both sides in stereo, also a part of it (``Range``)
    GET /{id}/recordings/{call}/replay.mp4        film of a call with a camera, likewise
    GET /{id}/recordings/{call}/frames/{at}.jpg   picture of the camera at this time, in milliseconds
    GET /{id}/recordings.zip                      all files of the session

Files are read by threads and sent at the pace of long answers (``http.read_pace``), so that a player or a
download does not delay calls. A reader that takes nothing is closed after ``stall_s``; a player requests the
rest again when it goes on. A file that is missing, foreign or a link is a 404. Playing is a use of the
session, which postpones the end of its recordings (``recording.retention``).
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar

from fastapi import APIRouter, Header, HTTPException, Request, Response
from fastapi.params import Depends
from starlette.responses import FileResponse

from parley.core.errors import MediaError
from parley.recording.library import (
    CHUNK_BYTES,
    call_detail,
    picture_file,
    recorded_calls,
    replay_file,
    zipped,
)
from parley.recording.retention import mark_used
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.read_pace import ReadPace

_T = TypeVar("_T")
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

    @router.get("/{session_id}/recordings", dependencies=in_use)
    async def calls(request: Request, session_id: str) -> Response:
        """Return the recorded calls of a session, oldest first."""

        def made() -> str:
            return json.dumps({"calls": [asdict(each) for each in recorded_calls(folder, session_id)]})

        return await _found(pace.made(client(request), made))

    @router.get("/{session_id}/recordings.zip", dependencies=in_use)
    async def archive(request: Request, session_id: str) -> EventStream:
        """Stream all recordings of a session as a ZIP."""
        pieces = zipped(folder, session_id)
        first = await _found(asyncio.to_thread(next, pieces, b""))
        return EventStream(
            _sent(first, pieces, pace, client(request)),
            stall_s=stall_s,
            media_type="application/zip",
            headers={"Content-Disposition": f'attachment; filename="{session_id}.zip"'},
        )

    @router.get("/{session_id}/recordings/{call_id}", dependencies=in_use)
    async def call(request: Request, session_id: str, call_id: str) -> Response:
        """Return the events of a recorded call and the peaks of both sides."""

        def made() -> str:
            return json.dumps(call_detail(folder, session_id, call_id))

        return await _found(pace.made(client(request), made))

    async def file(request: Request, path: Path, media_type: str, bounds: str | None) -> EventStream:
        await asyncio.to_thread(mark_used, path.parent)
        size = (await _found(asyncio.to_thread(path.stat))).st_size
        first, last = _span(bounds, size)
        is_part = bounds is not None and (first, last) != (0, size - 1)
        headers = {"Accept-Ranges": "bytes", "Content-Length": str(last - first + 1)}
        if is_part:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        pieces = _pieces(path, first, last - first + 1)
        return EventStream(
            _sent(b"", pieces, pace, client(request)),
            stall_s=stall_s,
            media_type=media_type,
            status=206 if is_part else 200,
            headers=headers,
        )

    @router.get("/{session_id}/recordings/{call_id}/replay.wav", dependencies=in_use)
    async def replay(
        request: Request, session_id: str, call_id: str, range_: RangeHeader = None
    ) -> EventStream:
        """Return a recorded call in stereo, the caller left; also a range of its bytes."""
        path = await _found(asyncio.to_thread(replay_file, folder, session_id, call_id))
        return await file(request, path, "audio/wav", range_)

    @router.get("/{session_id}/recordings/{call_id}/replay.mp4", dependencies=in_use)
    async def film(
        request: Request, session_id: str, call_id: str, range_: RangeHeader = None
    ) -> EventStream:
        """Return the film of a recorded call with a camera; also a range of its bytes."""
        path = await _found(asyncio.to_thread(replay_file, folder, session_id, call_id, film=True))
        return await file(request, path, "video/mp4", range_)

    @router.get("/{session_id}/recordings/{call_id}/frames/{at_ms}.jpg", dependencies=in_use)
    async def picture(request: Request, session_id: str, call_id: str, at_ms: int) -> FileResponse:
        """Return the picture of the camera at a time of a recorded call."""
        path = await _found(asyncio.to_thread(picture_file, folder, session_id, call_id, at_ms))
        with pace.take(client(request)):
            await pace.read(client(request), path.stat().st_size)
        return FileResponse(path, media_type="image/jpeg")


async def _found(made: Awaitable[_T]) -> _T:
    """Return a result about files that may be absent.

    Raises:
        HTTPException: 404, there is nothing of that name.
    """
    try:
        return await made
    except MediaError as error:
        raise HTTPException(404, str(error)) from error
    except FileNotFoundError as error:
        # Retention was faster.
        raise HTTPException(404, "the recording was removed") from error


def _span(bounds: str | None, size: int) -> tuple[int, int]:
    """Return the first and the last byte that a ``Range`` header requests, by RFC 9110 (14.1.2).

    Raises:
        HTTPException: 416, there are no such bytes.
    """
    match = None if bounds is None else _RANGE.fullmatch(bounds.strip())
    if match is None or match.groups() == ("", ""):
        return 0, size - 1
    first, last = match.groups()
    if not first:
        span = max(0, size - int(last)), size - 1
    else:
        span = int(first), min(int(last or size), size - 1)
    if span[0] > span[1]:
        raise HTTPException(416, "no such bytes", headers={"Content-Range": f"bytes */{size}"})
    return span


def _pieces(path: Path, start: int, count: int) -> Generator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while count > 0 and (piece := file.read(min(CHUNK_BYTES, count))):
            count -= len(piece)
            yield piece


async def _sent(
    first: bytes, pieces: Generator[bytes], pace: ReadPace, client: str
) -> AsyncGenerator[bytes, None]:
    """Yield pieces of a file, read in a thread, when they may be sent."""
    try:
        with pace.take(client):
            piece = first or await asyncio.to_thread(next, pieces, b"")
            while piece:
                await pace.read(client, len(piece))
                yield piece
                piece = await asyncio.to_thread(next, pieces, b"")
    finally:
        await asyncio.to_thread(pieces.close)
