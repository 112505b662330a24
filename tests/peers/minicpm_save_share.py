"""Save and share as the MiniCPM-o server's pages do it: the requests of their component, and no others.

The component gets the id of the recording from the session class of its page. It uploads the recording of the
browser, writes the comment, and makes the address that the user sends to others; the viewer at that address
reads what is there.
"""

import asyncio
import io
import zipfile
from typing import Any

import httpx
import numpy as np
import soundfile

# Names that the viewer tries for the recording of the browser, in this order.
CANDIDATES = ("frontend_replay.webm", "frontend_replay.mp4", "frontend_replay.wav")


class SaveShare:
    """Component of a page.

    Args:
        client: at the server.
        session_id: ``recording_session_id`` of the session.
    """

    def __init__(self, client: httpx.AsyncClient, session_id: str) -> None:
        self._client, self._session_id = client, session_id

    @property
    def address(self) -> str:
        """Address for others."""
        return f"/s/{self._session_id}"

    async def upload(self, content: bytes, media_type: str = "video/webm") -> dict[str, Any]:
        files = {"file": ("recording.webm", content, media_type)}
        return await self._read("POST", "/upload-recording", files=files)

    async def save_comment(self, comment: str) -> dict[str, Any]:
        return await self._read("POST", "/comment", json={"comment": comment.strip()})

    async def fetch_comment(self) -> str:
        return str((await self._read("GET", "/comment"))["comment"])

    # The viewer.

    async def meta(self) -> dict[str, Any]:
        return await self._read("GET", "/meta")

    async def recording(self) -> dict[str, Any]:
        return await self._read("GET", "/recording")

    async def asset(self, name: str) -> bytes:
        answer = await self._client.get(f"/api/sessions/{self._session_id}/assets/{name}")
        return answer.raise_for_status().content

    async def front_end_replay(self) -> tuple[str, int] | None:
        """Return the name and the length of the browser's recording, found as the viewer does."""
        for name in CANDIDATES:
            found = await self._client.head(f"/api/sessions/{self._session_id}/assets/{name}")
            if found.is_success:
                return name, int(found.headers["content-length"])
        return None

    async def download(self) -> zipfile.ZipFile:
        answer = await self._client.get(f"/api/sessions/{self._session_id}/download")
        return zipfile.ZipFile(io.BytesIO(answer.raise_for_status().content))

    async def _read(self, method: str, below: str, **body: Any) -> dict[str, Any]:
        answer = await self._client.request(method, f"/api/sessions/{self._session_id}{below}", **body)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


async def when_made(sharing: SaveShare) -> dict[str, Any]:
    """Return the timeline of a call when its stereo file is there."""
    async with asyncio.timeout(60):
        while "merged_replay" not in (found := await sharing.recording()):
            await asyncio.sleep(0.05)
    return found


async def check_viewer(sharing: SaveShare, recording: dict[str, Any], *, seconds: int, level: float) -> None:
    """Check what the viewer shows of a call in which the caller was at one level for these seconds."""
    meta = await sharing.meta()
    assert (meta["app_type"], recording["mode"]) == ("audio_duplex", "duplex")
    assert meta["created_at"] == recording["start_ts"] < meta["ended_at"]
    chunks = recording["chunks"]
    assert [each["index"] for each in chunks] == list(range(len(chunks)))
    heard = [await sharing.asset(each["user_audio"]) for each in chunks if "user_audio" in each]
    samples = np.concatenate([soundfile.read(io.BytesIO(each))[0] for each in heard])
    assert len(samples) == 16_000 * seconds
    assert abs(float(np.median(samples)) - level) < 0.01
    said = [each["result"] for each in chunks if each["result"]["mode"] == "SPEAK"]
    spoken = [soundfile.read(io.BytesIO(await sharing.asset(each["ai_audio"])))[0] for each in said]
    assert max(float(np.abs(each).max()) for each in spoken) > 0.05
    replay, _ = soundfile.read(io.BytesIO(await sharing.asset(recording["merged_replay"])))
    assert replay.shape[1] == 2
