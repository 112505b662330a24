"""Routes of recordings: parts of a file, names that are none, and who may read."""

import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from parley.pipelines.call_recording import CallRecordings
from parley.recording.settings import RecordingSettings
from tests.peers.session_gateway import Turns, application, client_of
from tests.recorded_call import record_call

KEY = "k" * 32


class Recorded:
    """A session with one recorded call, at a gateway.

    Attributes:
        client: at the gateway.
        session: path of the session.
        path: folder of the recording.
    """

    def __init__(self, client: httpx.AsyncClient, session: str, path: Path) -> None:
        self.client, self.session, self.path = client, session, path

    async def get(self, below: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"{self.session}{below}", headers=headers)

    async def replay(self, part: str) -> httpx.Response:
        return await self.get(f"/recordings/{self.path.name}/replay.wav", range=part)


@pytest_asyncio.fixture
async def recorded(tmp_path: Path) -> AsyncIterator[Recorded]:
    recordings = CallRecordings(RecordingSettings(folder=tmp_path), "embedded")
    async with application(tmp_path, Turns(), recordings=recordings) as (app, _), client_of(app) as client:
        session = (await client.post("/api/sessions")).json()["id"]
        yield Recorded(client, f"/api/sessions/{session}", await record_call(tmp_path, session))


async def test_a_call_is_listed_and_played_whole(recorded: Recorded):
    (call,) = (await recorded.get("/recordings")).json()["calls"]
    assert call["call_id"] == recorded.path.name
    answer = await recorded.get(f"/recordings/{call['call_id']}/replay.wav")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
    assert answer.content == (recorded.path / "merged_replay.wav").read_bytes()
    assert (await recorded.get(f"/recordings/{call['call_id']}")).json()["events"]


@pytest.mark.parametrize(
    ("part", "first", "last"),
    [("bytes=0-9", 0, 9), ("bytes=100-", 100, -1), ("bytes=-7", -7, -1), ("bytes=5-99999999", 5, -1)],
)
async def test_a_player_gets_the_part_that_it_requests(recorded: Recorded, part: str, first: int, last: int):
    whole = (recorded.path / "merged_replay.wav").read_bytes()
    answer = await recorded.replay(part)
    first, last = first % len(whole), last % len(whole)
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(whole)}"
    assert answer.content == whole[first : last + 1]


async def test_a_film_is_there_when_it_was_made(recorded: Recorded):
    address = f"/recordings/{recorded.path.name}/replay.mp4"
    assert (await recorded.get(address)).status_code == 404
    (recorded.path / "merged_replay.mp4").write_bytes(b"0123456789")
    part = await recorded.get(address, range="bytes=2-4")
    assert (part.status_code, part.content, part.headers["content-type"]) == (206, b"234", "video/mp4")
    (call,) = (await recorded.get("/recordings")).json()["calls"]
    assert call["has_film"]


@pytest.mark.parametrize("part", ["bytes=99999999-", "bytes=9-5", "bytes=-0"])
async def test_bytes_that_do_not_exist_are_refused(recorded: Recorded, part: str):
    answer = await recorded.replay(part)
    assert answer.status_code == 416
    assert answer.headers["content-range"].startswith("bytes */")


@pytest.mark.parametrize("part", ["bytes=0-1,5-6", "seconds=1-2", "bytes=-", "bytes=a-b"])
async def test_a_range_that_is_none_is_answered_with_the_whole_file(recorded: Recorded, part: str):
    answer = await recorded.replay(part)
    assert answer.status_code == 200
    assert len(answer.content) == (recorded.path / "merged_replay.wav").stat().st_size


@pytest.mark.parametrize(
    "below",
    [
        "/recordings/..%2F..",
        "/recordings/" + "a" * 32,
        "/recordings/" + "a" * 32 + "/replay.wav",
        "/recordings/..%2Fx/replay.wav",
        "/recordings/{call}/frames/5.jpg",
        "/recordings/{call}/frames/-5.jpg",
        "/recordings/{call}/meta.json",
    ],
)
async def test_names_that_are_not_there_are_404(recorded: Recorded, below: str):
    assert (await recorded.get(below.replace("{call}", recorded.path.name))).status_code == 404


async def test_a_session_is_downloaded_as_an_archive_and_gone_when_deleted(recorded: Recorded):
    answer = await recorded.get("/recordings.zip")
    assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None
    deleted = await recorded.client.delete(recorded.session)
    assert deleted.json()["removed"]["recordings"]["calls"] == 1
    assert not recorded.path.exists()
    assert (await recorded.get("/recordings.zip")).status_code == 404


async def test_with_keys_only_the_owner_hears_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    recordings = CallRecordings(RecordingSettings(folder=tmp_path), "embedded")
    async with application(tmp_path, Turns(), recordings=recordings) as (app, _), client_of(app) as client:
        mine = {"authorization": f"Bearer {KEY}"}
        session = (await client.post("/api/sessions", headers=mine)).json()["id"]
        path = await record_call(tmp_path, session)
        for below in ("", ".zip", f"/{path.name}", f"/{path.name}/replay.wav"):
            address = f"/api/sessions/{session}/recordings{below}"
            assert (await client.get(address)).status_code == 401
            assert (await client.get(address, headers=mine)).status_code == 200
