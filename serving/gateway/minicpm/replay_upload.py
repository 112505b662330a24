"""Upload of a recording that a client made of its own call: ``POST /api/sessions/{id}/upload-recording``.

Input: a multipart form with a ``file``, from a client that may operate the session. It is written while it
arrives, with the recording of the newest call of the session (``recording.client_replay``), and is there only
when it is complete. Where that call was not recorded, its caller may have refused it: no other call gets the
file. Bounds: its length (``recording.max_replay_mb``), its pace and its time, the number of uploads at a time
and in a minute, and the free space of the disk. Its kind has to be the one that it claims.

A refusal reads on, so that its client reads the reason. A session that is deleted meanwhile keeps nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import HTTPException, Request

from parley.core.errors import CapacityError, MediaError, UnknownSessionError
from parley.core.grants import ClientIdentity
from parley.recording.at_rest import RecordingKeyError
from parley.recording.client_replay import (
    ENDINGS,
    HEAD_BYTES,
    MB,
    ClientReplayWriter,
    DiskFullError,
    NoRecordedCallError,
    WithheldAudioError,
    ending_of,
    open_client_replay,
)
from parley.recording.objects import RecordingBucket
from parley.recording.settings import RecordingSettings
from parley.runtime.object_store import ObjectStoreError
from parley.serving.gateway.http.file_field import FileField
from parley.serving.gateway.http.requests import BodyError, read_pieces
from parley.serving.gateway.limits import ConcurrencyLimit, Rate
from parley.serving.gateway.settings import COUNTED_CLIENTS, ServerTuning

_T = TypeVar("_T")
FIELD = "file"
# Uploads at the same time, each with a file on the disk, and those of one address in a minute.
MOST_UPLOADS, UPLOADS_PER_MINUTE = 8, 30
# A telephone in a weak network sends more.
LEAST_BYTES_PER_S = 8_000
# Longest time for one: at the least pace 200 MB take seven hours, in which eight clients would keep all
# others out. In this time they arrive at 0.9 Mbit/s.
LONGEST_S = 1_800.0
# Headers of the form, in addition to the file.
FORM_BYTES = 16_384
# Written together: so much, or what has come in that time. The S3 mover leaves a call alone whose file was
# written within a minute (``recording.uploads.RECEIVING_S``), and a megabyte takes two at the least pace.
WRITE_BYTES, WRITE_S = 1_048_576, 5.0


class ClientReplayUpload:
    """Uploads of one process.

    Args:
        settings: of the server.
        recording: of the deployment.
        bucket: to which recordings move; None: they stay.
    """

    def __init__(
        self, settings: ServerTuning, recording: RecordingSettings, bucket: RecordingBucket | None
    ) -> None:
        self._settings, self._recording, self._bucket = settings, recording, bucket
        # A disk or a bucket that takes nothing keeps threads of its own, which no call waits for.
        self._threads = ThreadPoolExecutor(MOST_UPLOADS, thread_name_prefix="client_replays")
        self._most_bytes = int(recording.max_replay_mb * MB)
        self._rate = Rate(
            UPLOADS_PER_MINUTE, "{limit} uploads in a minute: go on later", clients=COUNTED_CLIENTS
        )
        self._places = ConcurrencyLimit(
            MOST_UPLOADS,
            f"{MOST_UPLOADS} recordings are being received, try again in a moment",
            each=1,
            each_full="a recording of this client is being received, try again later",
        )

    async def take(
        self,
        request: Request,
        session_id: str,
        call_id: str,
        identity: ClientIdentity,
        exists: Callable[[str], Awaitable[object]],
    ) -> dict[str, object]:
        """Store the file of a request; return the answer of the MiniCPM-o server.

        Args:
            request: whose body has not been read.
            session_id: of the session.
            call_id: its newest call, which the file is about; empty where it has none.
            identity: client that may operate it.
            exists: called at the end; raises UnknownSessionError where the session was deleted meanwhile.

        Raises:
            HTTPException, BodyError, CapacityError: it is refused.
            UnknownSessionError: the session was deleted meanwhile; nothing of the file stays.
        """
        if not self._most_bytes or not self._recording.enabled:
            # Also where an earlier call was recorded: from now on no audio is kept.
            raise HTTPException(
                404,
                "recordings of clients are not accepted here (recording.enabled, recording.max_replay_mb)",
            )
        self._rate.take(identity.address)
        with self._places.take(identity.owner or identity.address):
            try:
                writer, size = await self._stored(request, session_id, call_id)
                try:
                    await exists(session_id)
                except UnknownSessionError:
                    await self._in_thread(writer.undo)
                    raise
            except NoRecordedCallError as error:
                raise HTTPException(404, str(error)) from error
            except WithheldAudioError as error:
                raise HTTPException(403, str(error)) from error
            except DiskFullError as error:
                raise CapacityError("there is no space for recordings, try again later", limit=0) from error
            except ObjectStoreError as error:
                raise CapacityError("recordings are in S3, which does not answer", limit=0) from error
            except RecordingKeyError as error:
                raise HTTPException(409, str(error)) from error
            except MediaError as error:
                raise HTTPException(409, "the recording of the session was removed meanwhile") from error
        return {"status": "ok", "path": writer.name, "size_bytes": size}

    async def _in_thread(self, job: Callable[..., _T], *given: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, job, *given)

    @property
    def most_body_bytes(self) -> int:
        """Length of the longest form that is accepted."""
        return self._most_bytes + FORM_BYTES

    async def _stored(
        self, request: Request, session_id: str, call_id: str
    ) -> tuple[ClientReplayWriter, int]:
        pieces = read_pieces(
            request,
            max_bytes=self.most_body_bytes,
            within_s=self._settings.body_s,
            least_bytes_per_s=LEAST_BYTES_PER_S,
            most_s=LONGEST_S,
        )
        async with aclosing(pieces):
            field = FileField(request, pieces, FIELD)
            claimed = await field.media_type()
            if claimed not in ENDINGS:
                raise BodyError(
                    f"a file of type {claimed[:100]!r} is not accepted, but {', '.join(ENDINGS)}", status=400
                )
            async with aclosing(field.content()) as content:
                head = bytearray()
                async for piece in content:
                    head += piece
                    if len(head) >= HEAD_BYTES:
                        break
                if ending_of(bytes(head[:HEAD_BYTES])) != ENDINGS[claimed]:
                    raise BodyError(f"the file is not what it says, {claimed}", status=400)
                given = self._recording, session_id, call_id, ENDINGS[claimed], self._bucket
                writer = await self._in_thread(open_client_replay, *given)
                try:
                    size = await self._written(writer, head, content)
                    await self._in_thread(writer.finish)
                except BaseException as error:
                    await self._in_thread(writer.discard, error)
                    raise
        return writer, size

    async def _written(
        self, writer: ClientReplayWriter, head: bytearray, content: AsyncGenerator[bytes, None]
    ) -> int:
        """Write a file that begins with ``head``; return its length."""
        size, held = len(head), head
        loop = asyncio.get_running_loop()
        written_s = loop.time()
        async for piece in content:
            held += piece
            size += len(piece)
            if size > self._most_bytes:
                break
            if len(held) >= WRITE_BYTES or loop.time() - written_s >= WRITE_S:
                await self._in_thread(writer.write, bytes(held))
                held.clear()
                written_s = loop.time()
        if size > self._most_bytes:
            raise BodyError(f"the file is over {self._most_bytes} bytes", status=413)
        await self._in_thread(writer.write, bytes(held))
        return size
