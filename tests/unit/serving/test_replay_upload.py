"""Upload of a client's own recording from a slow client, on virtual time."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fastapi import Request
from starlette.types import Message

from parley.core.grants import ANONYMOUS
from parley.recording.client_replay import open_client_replay
from parley.recording.settings import RecordingSettings
from parley.recording.uploads import RECEIVING_S, is_receiving
from parley.serving.gateway.http.requests import BodyError
from parley.serving.gateway.minicpm.replay_upload import LEAST_BYTES_PER_S, LONGEST_S, ClientReplayUpload
from parley.serving.gateway.settings import ServerTuning
from tests.client_recordings import content_of
from tests.recorded_call import record_call
from tests.virtual_time import run

SESSION = str(uuid.UUID(int=7))
DISPOSITION = b'Content-Disposition: form-data; name="file"; filename="a.webm"'
HEAD = b"--x\r\n" + DISPOSITION + b"\r\nContent-Type: video/webm\r\n\r\n"
PACE = LEAST_BYTES_PER_S + 100


class SlowClient:
    """Client that sends its recording a piece a second, at little more than the least pace.

    Attributes:
        stored: length of the file on the disk before each second.
    """

    def __init__(self, path: Path, seconds: int) -> None:
        self._partial = path / ".frontend_replay.webm"
        self._seconds = seconds
        self.stored: list[int] = []

    async def _pieces(self) -> AsyncIterator[bytes]:
        content = content_of("video/webm", PACE)
        yield HEAD + content
        for _ in range(self._seconds):
            await asyncio.sleep(1)
            self.stored.append(self._partial.stat().st_size)
            yield content
        yield b"\r\n--x--\r\n"

    async def upload(self, folder: Path, path: Path) -> dict[str, object]:
        pieces = self._pieces()

        async def receive() -> Message:
            piece = await anext(pieces, b"")
            return {"type": "http.request", "body": piece, "more_body": bool(piece)}

        async def exists(_session_id: str) -> None:
            return None

        headers = [(b"content-type", b"multipart/form-data; boundary=x")]
        settings = RecordingSettings(enabled=True, folder=folder, min_free_gb=0)
        uploads = ClientReplayUpload(ServerTuning(), settings, None)
        request = Request({"type": "http", "method": "POST", "headers": headers}, receive)
        return await uploads.take(request, SESSION, path.name, ANONYMOUS, exists)


def test_a_slow_upload_is_on_the_disk_well_within_the_time_for_which_its_call_stays(tmp_path: Path):
    path = asyncio.run(record_call(tmp_path, SESSION))
    client = SlowClient(path, seconds=150)
    answer = run(client.upload(tmp_path, path))
    assert answer["size_bytes"] == 151 * PACE == (path / "frontend_replay.webm").stat().st_size
    # Under a megabyte until the 130th second.
    often = round(RECEIVING_S / 6)
    assert all(a < b for a, b in zip(client.stored, client.stored[often:], strict=False))


def test_an_upload_that_takes_too_long_is_refused_and_leaves_nothing(tmp_path: Path):
    path = asyncio.run(record_call(tmp_path, SESSION))
    client = SlowClient(path, seconds=20_000)
    with pytest.raises(BodyError, match="did not arrive within 1800 s") as refused:
        run(client.upload(tmp_path, path))
    assert refused.value.status == 408 and len(client.stored) <= LONGEST_S + 1
    assert not list(path.glob("*frontend*")) and not list(path.glob(".*"))


async def test_a_piece_that_a_buffer_holds_says_that_the_file_is_being_received(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    settings = RecordingSettings(folder=tmp_path, min_free_gb=0)
    writer = open_client_replay(settings, SESSION, path.name, "webm", None)
    for _ in range(2):
        os.utime(path / ".frontend_replay.webm", (1, 1))
        assert not is_receiving(path)
        writer.write(b"x")
        assert is_receiving(path)
    writer.discard(OSError("cut off"))
    assert not is_receiving(path)
