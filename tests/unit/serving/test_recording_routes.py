"""Routes of recordings: parts of a file, names that are none, and who may read."""

import asyncio
import base64
import io
import threading
import zipfile
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from parley.pipelines.call_recording import CallRecordings
from parley.recording.at_rest import KEYS_ENV
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.http.read_pace import ReadPace
from parley.serving.gateway.recording_routes import _sent
from parley.serving.gateway.settings import ServerTuning
from tests.peers.session_gateway import Turns, application, client_of
from tests.recorded_call import record_call
from tests.safari_player import played_as_by_safari

# Ranges of a file, with their first and last byte.
PARTS = (
    *(("bytes=0-9", 0, 9), ("bytes=100-", 100, -1), ("bytes=-7", -7, -1)),
    *(("bytes=5-99999999", 5, -1), ("bytes=0-", 0, -1)),
)
KEY, OTHER = "k" * 32, "o" * 32
RECORDING_KEY, OTHER_RECORDING_KEY = (base64.b64encode(each * 32).decode() for each in (b"a", b"b"))


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
    [
        ("bytes=0-9", 0, 9),
        ("bytes=100-", 100, -1),
        ("bytes=-7", -7, -1),
        ("bytes=5-99999999", 5, -1),
        ("bytes=0-", 0, -1),
    ],
)
async def test_a_player_gets_the_part_that_it_requests(recorded: Recorded, part: str, first: int, last: int):
    whole = (recorded.path / "merged_replay.wav").read_bytes()
    answer = await recorded.replay(part)
    first, last = first % len(whole), last % len(whole)
    assert answer.status_code == 206
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(whole)}"
    assert answer.content == whole[first : last + 1]


async def test_safari_plays_a_call_and_its_film(recorded: Recorded):
    call = f"{recorded.session}/recordings/{recorded.path.name}"
    whole = await played_as_by_safari(recorded.client, f"{call}/replay.wav")
    assert whole == (recorded.path / "merged_replay.wav").read_bytes()
    (recorded.path / "merged_replay.mp4").write_bytes(b"0123456789")
    assert await played_as_by_safari(recorded.client, f"{call}/replay.mp4") == b"0123456789"


async def test_safari_plays_an_encrypted_call(encrypted: Recorded):
    call = f"{encrypted.session}/recordings/{encrypted.path.name}"
    whole = await played_as_by_safari(encrypted.client, f"{call}/replay.wav")
    assert whole.startswith(b"RIFF") and len(whole) == 44 + 6 * 16_000 * 4


async def test_no_part_of_a_file_that_was_made_anew_is_sent_to_a_reader_of_the_old_one(recorded: Recorded):
    address = f"/recordings/{recorded.path.name}/replay.wav"
    file = recorded.path / "merged_replay.wav"
    tag = (await recorded.replay("bytes=0-1")).headers["etag"]
    assert tag.startswith('"') and (await recorded.get(address)).headers["etag"] == tag
    same = await recorded.get(address, **{"range": "bytes=4-7", "if-range": tag})
    assert (same.status_code, same.content) == (206, file.read_bytes()[4:8])
    other = file.with_name("made_anew")
    other.write_bytes(b"another file")
    other.replace(file)
    for condition in (tag, "Sun, 29 Nov 2026 10:00:00 GMT", f"W/{tag}"):
        anew = await recorded.get(address, **{"range": "bytes=4-7", "if-range": condition})
        assert (anew.status_code, anew.content) == (200, b"another file")
        assert "content-range" not in anew.headers
    # A part that is not there is no error where the condition does not hold.
    assert (await recorded.get(address, **{"range": "bytes=99-", "if-range": tag})).status_code == 200


async def test_the_unit_of_a_range_may_be_written_in_any_case(recorded: Recorded):
    part = await recorded.replay("Bytes=0-3")
    assert (part.status_code, part.content) == (206, b"RIFF")


async def test_pictures_of_the_callers_turns_are_shown(recorded: Recorded):
    (recorded.path / "user_images").mkdir()
    for name in ("000001000-0.jpg", "000001000-1.png", "foreign.jpg"):
        (recorded.path / "user_images" / name).write_bytes(name.encode())
    call = f"/recordings/{recorded.path.name}"
    images = (await recorded.get(call)).json()["images"]
    assert images == [
        {"at_ms": 1_000, "name": "000001000-0.jpg"},
        {"at_ms": 1_000, "name": "000001000-1.png"},
    ]
    shown = await recorded.get(f"{call}/images/000001000-1.png")
    assert (shown.content, shown.headers["content-type"]) == (b"000001000-1.png", "image/png")
    assert (await recorded.get(f"{call}/images/foreign.jpg")).status_code == 404


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
        "/recordings/{call}/images/000001000-0.jpg",
        "/recordings/{call}/images/..%2Fmeta.json",
        "/recordings/{call}/images/meta.json",
        "/recordings/{call}/meta.json",
    ],
)
async def test_names_that_are_not_there_are_404(recorded: Recorded, below: str):
    answer = await recorded.get(below.replace("{call}", recorded.path.name))
    assert answer.status_code == 404
    assert str(recorded.path.parents[2]) not in answer.text


async def test_a_session_is_downloaded_as_an_archive_and_gone_when_deleted(recorded: Recorded):
    answer = await recorded.get("/recordings.zip")
    assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None
    deleted = await recorded.client.delete(recorded.session)
    assert deleted.json()["removed"]["recordings"]["calls"] == 1
    assert not recorded.path.exists()
    assert (await recorded.get("/recordings.zip")).status_code == 404


async def test_a_reader_who_leaves_while_a_piece_is_read_ends_it_quietly(tmp_path: Path):
    reading, go_on = threading.Event(), threading.Event()

    def pieces() -> Generator[bytes]:
        reading.set()
        go_on.wait(5)
        yield b"x"

    closed = threading.Event()
    sending = asyncio.create_task(anext(_sent(pieces(), closed.set, ReadPace(ServerTuning()), "a")))
    await asyncio.to_thread(reading.wait, 5)
    sending.cancel()
    await asyncio.sleep(0)
    assert not closed.is_set(), "closed while the thread reads"
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert closed.is_set()


async def test_with_keys_only_the_owner_hears_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", f"{KEY},{OTHER}")
    recordings = CallRecordings(RecordingSettings(folder=tmp_path), "embedded")
    async with application(tmp_path, Turns(), recordings=recordings) as (app, _), client_of(app) as client:
        mine = {"authorization": f"Bearer {KEY}"}
        session = (await client.post("/api/sessions", headers=mine)).json()["id"]
        path = await record_call(tmp_path, session)
        other = {"authorization": f"Bearer {OTHER}"}
        for below in ("", ".zip", f"/{path.name}", f"/{path.name}/replay.wav"):
            address = f"/api/sessions/{session}/recordings{below}"
            assert (await client.get(address)).status_code == 401
            assert (await client.get(address, headers=other)).status_code == 403
            assert (await client.get(address, headers=mine)).status_code == 200


@pytest_asyncio.fixture
async def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Recorded]:
    monkeypatch.setenv(KEYS_ENV, RECORDING_KEY)
    recordings = CallRecordings(RecordingSettings(folder=tmp_path, encrypted=True), "embedded")
    async with application(tmp_path, Turns(), recordings=recordings) as (app, _), client_of(app) as client:
        session = (await client.post("/api/sessions")).json()["id"]
        path = await record_call(tmp_path, session, seconds=6, encrypted=True)
        yield Recorded(client, f"/api/sessions/{session}", path)


async def test_an_encrypted_call_is_played_in_parts_and_downloaded_decrypted(encrypted: Recorded):
    assert not (encrypted.path / "merged_replay.wav").read_bytes().startswith(b"RIFF")
    whole = (await encrypted.get(f"/recordings/{encrypted.path.name}/replay.wav")).content
    assert whole.startswith(b"RIFF") and len(whole) == 44 + 6 * 16_000 * 4
    # From one chunk into the next.
    part = await encrypted.replay("bytes=65530-65545")
    assert (part.status_code, part.content) == (206, whole[65_530:65_546])
    assert (await encrypted.replay("bytes=-7")).content == whole[-7:]
    archive = zipfile.ZipFile(io.BytesIO((await encrypted.get("/recordings.zip")).content))
    assert archive.read(f"{encrypted.path.name}/merged_replay.wav") == whole


async def test_a_key_that_is_missing_is_409_and_says_which(
    encrypted: Recorded, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(KEYS_ENV, OTHER_RECORDING_KEY)
    call = f"/recordings/{encrypted.path.name}"
    for below in (call, f"{call}/replay.wav", f"{call}/replay.mp4", "/recordings.zip"):
        answer = await encrypted.get(below)
        assert answer.status_code == 409 and KEYS_ENV in answer.text, below
        assert str(encrypted.path.parents[2]) not in answer.text
    (listed,) = (await encrypted.get("/recordings")).json()["calls"]
    assert KEYS_ENV in listed["problem"] and not listed["has_replay"]


async def test_a_file_that_was_altered_is_500_and_never_noise(encrypted: Recorded):
    wav = encrypted.path / "merged_replay.wav"
    stored = bytearray(wav.read_bytes())
    stored[-1] ^= 1
    wav.write_bytes(stored)
    answer = await encrypted.replay("bytes=0-9")
    assert answer.status_code == 500 and "altered" in answer.text
    assert str(encrypted.path.parents[2]) not in answer.text


async def test_a_deleted_session_needs_no_key(encrypted: Recorded, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(KEYS_ENV)
    deleted = await encrypted.client.delete(encrypted.session)
    assert deleted.json()["removed"]["recordings"]["calls"] == 1
    assert not encrypted.path.exists()
