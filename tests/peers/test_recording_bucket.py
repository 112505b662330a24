"""Recordings that move to S3: moto's server in its own process, with faults of the server itself."""

import asyncio
import base64
import io
import os
import shutil
import sys
import time
import uuid
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

pytest.importorskip("obstore", reason="needs the extra 's3'")
pytest.importorskip("moto", reason="needs the packages of tests")

from parley.core.errors import ConfigError, MediaError
from parley.evals.harness.s3_server import S3Server
from parley.evals.regression.__main__ import recorded
from parley.pipelines.call_recording import CallRecordings
from parley.recording.at_rest import KEYS_ENV, MAGIC
from parley.recording.client_replay import ClientReplayWriter, open_client_replay
from parley.recording.folder import CALLER_AUDIO
from parley.recording.library import RecordingSummaries, asset_file, call_detail, recordings_of, zipped
from parley.recording.merge import track_samples
from parley.recording.objects import RecordingBucket, StoredSession
from parley.recording.pins import Pins
from parley.recording.retention import RemovedSessions, clean, remove_call
from parley.recording.settings import RecordingSettings, S3Settings
from parley.recording.uploads import UploadThread
from parley.runtime.object_store import ObjectStoreError, RequestLimits
from tests.client_recordings import content_of
from tests.peers.http_peer import HttpPeer
from tests.peers.operations_gateway import BEARER
from tests.peers.session_gateway import Turns, application, client_of
from tests.recorded_call import RATE_HZ, record_call

SESSION = str(uuid.UUID(int=21))
MOST_S = 60.0
QUICK = RequestLimits(connect_s=2, read_s=3, write_s=3, retries=0)


@pytest.fixture(scope="module")
def one_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
def bucket(one_server: S3Server) -> RecordingBucket:
    """Bucket with a beginning of its own, so that tests do not meet."""
    settings = one_server.settings.model_copy(update={"prefix": f"parley/{uuid.uuid4()}"})
    return RecordingBucket(settings, QUICK)


def until(condition: Callable[[], object]) -> None:
    until_s = time.monotonic() + MOST_S
    while not condition():
        assert time.monotonic() < until_s, "not in time"
        time.sleep(0.05)


class Uploads:
    """Upload thread of a folder, for the length of a context."""

    def __init__(self, folder: Path, bucket: RecordingBucket) -> None:
        self._folder, self._bucket = folder, bucket
        self.removed = RemovedSessions(folder, bucket)

    def __enter__(self) -> "Uploads":
        self.thread = UploadThread(self._folder, self._bucket, self.removed, is_merged=True, look_s=0.1)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.thread.close(MOST_S)


def moved(path: Path, bucket: RecordingBucket) -> None:
    with Uploads(path.parents[2], bucket):
        until(lambda: not path.exists())


async def test_a_finished_call_moves_and_is_read_there(tmp_path: Path, bucket: RecordingBucket):
    path = await record_call(tmp_path, SESSION, seconds=6)
    before = b"".join(zipped(recordings_of(tmp_path, SESSION)))
    moved(path, bucket)
    (call,) = RecordingSummaries(tmp_path, bucket).of_session(SESSION)[0]
    assert (call.call_id, call.has_replay, call.is_over) == (path.name, True, True)
    assert call_detail(tmp_path, SESSION, path.name, bucket)["peaks"]["interval_ms"] == 100
    (recording,) = recordings_of(tmp_path, SESSION, bucket)
    assert len(track_samples(recording, CALLER_AUDIO, RATE_HZ)) == 6 * RATE_HZ
    packed, packed_before = (
        zipfile.ZipFile(io.BytesIO(each)) for each in (b"".join(zipped([recording])), before)
    )
    assert packed.testzip() is None
    assert {name: packed.read(name) for name in packed.namelist()} == {
        name: packed_before.read(name) for name in packed_before.namelist()
    }
    assert recordings_of(tmp_path, SESSION) == []


async def test_a_suite_has_the_calls_of_the_bucket_and_those_that_are_not_moved_yet(
    tmp_path: Path, bucket: RecordingBucket
):
    first = await record_call(tmp_path, SESSION)
    moved(first, bucket)
    second = await record_call(tmp_path, str(uuid.UUID(int=22)))
    found = recorded(tmp_path, None, bucket)
    assert [each.call_id for each in found] == [first.name, second.name]
    assert len(track_samples(found[0], CALLER_AUDIO, RATE_HZ)) == RATE_HZ
    assert recorded(tmp_path, 1, bucket)[0].call_id == first.name
    assert [each.call_id for each in recorded(tmp_path, None)] == [second.name]


async def test_a_suite_says_in_one_line_that_its_bucket_does_not_answer(tmp_path: Path):
    with S3Server() as server:
        bucket = RecordingBucket(server.settings, QUICK)
    with pytest.raises(ConfigError):
        recorded(tmp_path, None, bucket)


async def test_a_clients_own_recording_follows_its_call_into_the_bucket(
    tmp_path: Path, bucket: RecordingBucket
):
    settings = RecordingSettings(folder=tmp_path, min_free_gb=0)
    path = await record_call(tmp_path, SESSION)
    webm, wav = content_of("video/webm", 3_000_000), content_of("audio/wav", 3_000)
    writer = open_client_replay(settings, SESSION, path.name, "webm", bucket)
    with Uploads(tmp_path, bucket) as uploads:
        other = await record_call(tmp_path, str(uuid.UUID(int=22)))
        until(lambda: not other.exists())
        # A call to which something is added does not move.
        assert path.exists()
        writer.write(webm)
        writer.finish()
        until(lambda: not path.exists())
        writer = open_client_replay(settings, SESSION, path.name, "wav", bucket)
        writer.write(wav)
        writer.finish()
        broken = open_client_replay(settings, SESSION, path.name, "mp4", bucket)
        broken.write(b"half")
        broken.discard(OSError("cut off"))
        removed = open_client_replay(settings, SESSION, path.name, "mp4", bucket)
        removed.write(b"of a session that was deleted")
        removed.finish()
        removed.undo()
    assert uploads.thread.counts.moved == 2
    found, media_type = asset_file(tmp_path, SESSION, ("frontend_replay.webm",), bucket)
    assert (found.read(), media_type) == (webm, "video/webm")
    assert asset_file(tmp_path, SESSION, ("frontend_replay.wav",), bucket)[0].read() == wav
    names = set(bucket.sessions(SESSION)[SESSION].calls[path.name])
    assert {"frontend_replay.webm", "frontend_replay.wav"} <= names
    assert "frontend_replay.mp4" not in names
    left = [each.name for each in (tmp_path / "sessions").iterdir() if each.name.startswith(".")]
    assert not left and RemovedSessions(tmp_path, bucket).remove(SESSION).calls == 1
    assert SESSION not in bucket.sessions()


class Receiving(HttpPeer):
    """S3 that takes every object; a client begins to upload its recording while it takes the last of a call.

    Attributes:
        names: of the objects that came.
        writer: of the client's recording.
    """

    def __init__(self, folder: Path, call_id: str) -> None:
        super().__init__()
        self._settings = RecordingSettings(folder=folder, min_free_gb=0)
        self._call_id = call_id
        self.names: list[str] = []
        self.writer: ClientReplayWriter | None = None

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self._take)]

    async def _take(self, request: web.Request) -> web.Response:
        await request.read()
        self.names.append(request.path.rpartition("/")[2])
        if self.writer is None and request.path.endswith(f"{self._call_id}/meta.json"):
            self.writer = open_client_replay(self._settings, SESSION, self._call_id, "webm", None)
            self.writer.write(b"half ")
        return web.Response(headers={"ETag": '"0"'})


async def test_an_upload_that_begins_while_its_call_moves_keeps_the_call(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    other = await record_call(tmp_path, str(uuid.UUID(int=22)))
    async with Receiving(tmp_path, path.name) as server:
        bucket = RecordingBucket(S3Settings(bucket="one", endpoint=f"http://127.0.0.1:{server.port}"), QUICK)
        with Uploads(tmp_path, bucket):
            # The look comes to it after the first.
            await asyncio.to_thread(until, lambda: not other.exists())
            assert server.writer is not None and path.exists()
            server.writer.write(b"and whole")
            server.writer.finish()
            assert (path / "frontend_replay.webm").read_bytes() == b"half and whole"
            await asyncio.to_thread(until, lambda: not path.exists())


async def test_recordings_of_a_client_move_in_their_order(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    for at_s, ending in enumerate(("webm", "wav", "mp4")):
        (path / f"frontend_replay.{ending}").write_bytes(bytes(1_000_000 // (1 + at_s)))
        os.utime(path / f"frontend_replay.{ending}", (at_s + 1, at_s + 1))
    async with Receiving(tmp_path, "another call") as server:
        bucket = RecordingBucket(S3Settings(bucket="one", endpoint=f"http://127.0.0.1:{server.port}"), QUICK)
        with Uploads(tmp_path, bucket):
            await asyncio.to_thread(until, lambda: not path.exists())
    moved_last = ["frontend_replay.webm", "frontend_replay.wav", "frontend_replay.mp4", "meta.json"]
    assert server.names[-4:] == moved_last


async def test_a_file_that_comes_while_its_call_is_removed_keeps_the_call(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)

    def is_elsewhere(folder: Path) -> bool:
        return not (folder / "frontend_replay.webm").exists()

    (path / "frontend_replay.webm").write_bytes(b"x")
    assert not remove_call(path, is_elsewhere)
    assert (path / "frontend_replay.webm").read_bytes() == b"x" and (path / "meta.json").exists()
    (path / "frontend_replay.webm").unlink()
    assert remove_call(path, is_elsewhere) and not path.exists()


async def test_a_call_that_is_on_or_not_merged_stays(tmp_path: Path, bucket: RecordingBucket):
    unmerged = await record_call(tmp_path, SESSION, merged=False)
    running = await record_call(tmp_path, SESSION)
    (running / "recording.json").write_text('{"is_over": false}')
    last = await record_call(tmp_path, SESSION)
    with Uploads(tmp_path, bucket):
        until(lambda: not last.exists())
    assert unmerged.exists() and running.exists()
    assert len(recordings_of(tmp_path, SESSION, bucket)) == 3


async def test_a_crash_before_the_removal_neither_loses_nor_doubles(tmp_path: Path, bucket: RecordingBucket):
    path = await record_call(tmp_path, SESSION)
    kept = tmp_path / "kept"
    shutil.copytree(path, kept)
    moved(path, bucket)
    (session,) = bucket.sessions().values()
    before = {name: each.size for name, each in session.calls[path.name].items()}
    # As a process leaves it that is killed after the last object and before the removal.
    shutil.copytree(kept, path)
    assert [each.call_id for each in recordings_of(tmp_path, SESSION, bucket)] == [path.name]
    moved(path, bucket)
    (session,) = bucket.sessions().values()
    assert {name: each.size for name, each in session.calls[path.name].items()} == before
    assert len(recordings_of(tmp_path, SESSION, bucket)) == 1


async def test_a_crash_before_the_last_object_leaves_the_call_where_it_was(
    tmp_path: Path, bucket: RecordingBucket
):
    path = await record_call(tmp_path, SESSION)
    bucket.put(f"sessions/{SESSION}/{path.name}/recording.json", path / "recording.json")
    other = tmp_path / "elsewhere"
    assert recordings_of(other, SESSION, bucket) == []
    assert len(recordings_of(tmp_path, SESSION, bucket)) == 1


async def test_a_server_that_is_killed_and_started_gets_what_waited(tmp_path: Path):
    with S3Server() as server:
        bucket = RecordingBucket(server.settings, QUICK)
        server.kill()
        path = await record_call(tmp_path, SESSION)
        with Uploads(tmp_path, bucket):
            with pytest.raises(ObjectStoreError, match="S3 does not"):
                bucket.sessions()
            assert path.exists()
            server.start()
            until(lambda: not path.exists())
        assert len(recordings_of(tmp_path, SESSION, bucket)) == 1


async def test_a_server_that_answers_nothing_delays_nothing_else(tmp_path: Path):
    with S3Server() as server:
        bucket = RecordingBucket(server.settings, QUICK)
        server.freeze()
        first = await record_call(tmp_path, SESSION)
        with Uploads(tmp_path, bucket):
            second = await record_call(tmp_path, SESSION)
            with pytest.raises(ObjectStoreError):
                bucket.sessions()
            assert first.exists() and second.exists()
            server.thaw()
            until(lambda: not first.exists() and not second.exists())
        assert len(recordings_of(tmp_path, SESSION, bucket)) == 2


class Refusing(HttpPeer):
    """Server that refuses every request as S3 does without permission."""

    asked = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self._refuse)]

    async def _refuse(self, _request: web.Request) -> web.Response:
        self.asked += 1
        body = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        return web.Response(status=403, text=body, content_type="application/xml")


async def test_a_bucket_that_refuses_keeps_the_call_here_and_says_so(tmp_path: Path):
    path = await record_call(tmp_path, SESSION)
    async with Refusing() as server:
        bucket = RecordingBucket(
            S3Settings(bucket="other", endpoint=f"http://127.0.0.1:{server.port}"), QUICK
        )
        with pytest.raises(ObjectStoreError, match="S3 does not list.*(403|Forbidden|Denied|denied)"):
            await asyncio.to_thread(bucket.sessions)
        uploads = Uploads(tmp_path, bucket)
        uploads.__enter__()
        asked = server.asked
        async with asyncio.timeout(MOST_S):
            while server.asked < asked + 2:
                await asyncio.sleep(0.05)
        assert await asyncio.to_thread(uploads.thread.close, MOST_S)
    assert path.exists() and len(recordings_of(tmp_path, SESSION)) == 1


async def test_a_deleted_session_is_removed_here_and_there(tmp_path: Path, bucket: RecordingBucket):
    path = await record_call(tmp_path, SESSION)
    kept = await record_call(tmp_path, str(uuid.UUID(int=22)))
    moved(path, bucket)
    here = await record_call(tmp_path, SESSION)
    removed = RemovedSessions(tmp_path, bucket).remove(SESSION)
    assert (removed.calls, removed.files) == (2, 12) and not here.exists()
    assert SESSION not in bucket.sessions()
    assert len(recordings_of(tmp_path, kept.parent.name, bucket)) == 1
    assert not list((tmp_path / "sessions").glob(".*"))


async def test_objects_that_could_not_be_removed_are_removed_later(tmp_path: Path):
    with S3Server() as server:
        bucket = RecordingBucket(server.settings, QUICK)
        path = await record_call(tmp_path, SESSION)
        moved(path, bucket)
        server.freeze()
        with pytest.raises(ObjectStoreError):
            RemovedSessions(tmp_path, bucket).remove(SESSION)
        server.thaw()
        # Another process, which knows of it from the folder alone.
        with Uploads(tmp_path, bucket):
            until(lambda: not bucket.sessions())
            until(lambda: not list((tmp_path / "sessions").glob(".deleted-*")))


async def test_retention_removes_what_is_old_or_too_much_in_both_places(
    tmp_path: Path, bucket: RecordingBucket
):
    sessions = [str(uuid.UUID(int=each)) for each in (31, 32, 33)]
    old, pinned, here = [await record_call(tmp_path, each) for each in sessions]
    (tmp_path / "pin").touch()
    bucket.put(f"sessions/{sessions[1]}/pinned", tmp_path / "pin")
    with Uploads(tmp_path, bucket):
        until(lambda: not (old.exists() or pinned.exists() or here.exists()))
    later_s = time.time() + 5 * 86_400
    planned = clean(tmp_path, retention_days=3, now_s=later_s, bucket=bucket, dry_run=True)
    assert {each.session_id for each in planned.removed} == {sessions[0], sessions[2]}
    assert len(bucket.sessions()) == 3
    found = clean(tmp_path, max_storage_gb=1e-9, now_s=later_s, bucket=bucket)
    assert {each.session_id for each in found.removed} == {sessions[0], sessions[2]}
    assert found.kept == {sessions[1]: "pinned"} and list(bucket.sessions()) == [sessions[1]]


class PinnedMeanwhile(RecordingBucket):
    """Bucket with a session that another machine pins once all sessions were listed."""

    def sessions(self, only: str = "") -> dict[str, StoredSession]:
        found = super().sessions(only)
        if not only:
            self.put_bytes(f"sessions/{SESSION}/pinned", b"")
        return found


async def test_a_pin_that_is_set_while_retention_runs_counts(tmp_path: Path, one_server: S3Server):
    settings = one_server.settings.model_copy(update={"prefix": f"parley/{uuid.uuid4()}"})
    bucket, path = PinnedMeanwhile(settings, QUICK), await record_call(tmp_path, SESSION)
    moved(path, bucket)
    later_s = time.time() + 5 * 86_400
    found = clean(tmp_path, retention_days=3, now_s=later_s, bucket=bucket)
    assert found.kept == {SESSION: "pinned"} and bucket.sessions()[SESSION].calls


async def test_a_pin_stays_with_calls_that_move_and_is_seen_from_another_machine(
    tmp_path: Path, bucket: RecordingBucket
):
    here, other = tmp_path / "here", tmp_path / "other"
    path = await record_call(here, SESSION)
    Pins(here, bucket).add(SESSION)
    with Uploads(here, bucket):
        until(lambda: not path.exists())
    elsewhere = Pins(other, bucket)
    assert elsewhere.has(SESSION)
    later_s = time.time() + 5 * 86_400
    assert clean(other, retention_days=3, now_s=later_s, bucket=bucket).kept == {SESSION: "pinned"}

    elsewhere.remove(SESSION)
    # The machine that the call was held on has its file.
    assert not elsewhere.has(SESSION) and Pins(here, bucket).has(SESSION)
    elsewhere.add(SESSION)
    Pins(here, bucket).remove(SESSION)
    assert not elsewhere.has(SESSION) and not Pins(here, bucket).has(SESSION)
    # A deleted session takes its pin along, which is no call.
    Pins(here, bucket).add(SESSION)
    assert RemovedSessions(here, bucket).remove(SESSION).calls == 1
    for act in (elsewhere.has, elsewhere.add):
        with pytest.raises(MediaError, match="no recordings"):
            act(SESSION)
    assert not bucket.sessions()


@pytest_asyncio.fixture
async def gateway(
    tmp_path: Path, one_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[httpx.AsyncClient, str, Path]]:
    """Yield a client of a gateway, the path of a session, and the folder that its encrypted call had."""
    monkeypatch.setenv(KEYS_ENV, base64.b64encode(os.urandom(32)).decode())
    settings = RecordingSettings(folder=tmp_path, encrypted=True, s3=one_server.settings)
    recordings = CallRecordings(settings, "embedded")
    async with application(tmp_path, Turns(), recordings=recordings) as (app, _), client_of(app) as client:
        session = (await client.post("/api/sessions")).json()["id"]
        path = await record_call(tmp_path, session, seconds=6, encrypted=True)
        await asyncio.to_thread(moved, path, RecordingBucket(one_server.settings, QUICK))
        yield client, session, path
    await recordings.close()


async def test_an_encrypted_call_is_played_from_the_bucket_and_deleted(
    gateway: tuple[httpx.AsyncClient, str, Path], one_server: S3Server
):
    client, session, path = gateway
    bucket = RecordingBucket(one_server.settings, QUICK)
    call = f"/api/sessions/{session}/recordings/{path.name}"
    stored = bucket.read(f"sessions/{session}/{path.name}/merged_replay.wav", 0, 8)
    assert stored == MAGIC
    whole = (await client.get(f"{call}/replay.wav")).content
    assert whole.startswith(b"RIFF") and len(whole) == 44 + 6 * RATE_HZ * 4
    part = await client.get(f"{call}/replay.wav", headers={"range": "bytes=65530-65545"})
    assert (part.status_code, part.content) == (206, whole[65_530:65_546])
    (listed,) = (await client.get(f"/api/sessions/{session}/recordings")).json()["calls"]
    assert listed["has_replay"] and (await client.get(call)).json()["events"]
    deleted = await client.delete(f"/api/sessions/{session}")
    removed = deleted.json()["removed"]["recordings"]
    assert (removed["calls"], removed["files"]) == (1, 8)
    assert session not in bucket.sessions()


async def test_a_forgotten_person_has_nothing_in_the_bucket(
    gateway: tuple[httpx.AsyncClient, str, Path], one_server: S3Server
):
    client, session, path = gateway
    bucket = RecordingBucket(one_server.settings, QUICK)
    assert session in bucket.sessions()
    # The client has made the session, and is found by it.
    other = (await client.post("/api/sessions")).json()["id"]
    forgotten = await client.post("/api/people/forget", json={"session": other}, headers=BEARER)
    assert forgotten.status_code == 200 and sorted(forgotten.json()["sessions"]) == sorted([session, other])
    assert forgotten.json()["removed"]["recordings"]["files"] == 8
    assert session not in bucket.sessions() and not path.exists()


def test_a_package_that_is_missing_is_one_line_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Python's own way to say that a module cannot be imported.
    monkeypatch.setitem(sys.modules, "obstore", None)
    settings = RecordingSettings(folder=tmp_path, s3=S3Settings(bucket="recordings"))
    with pytest.raises(ConfigError, match="recording.s3 needs the extra 's3'"):
        CallRecordings(settings, "embedded")


class RefusingOne(HttpPeer):
    """S3 that takes every object but those of one session."""

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self._take)]

    async def _take(self, request: web.Request) -> web.Response:
        await request.read()
        if SESSION in request.path:
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        return web.Response(headers={"ETag": '"0"'})


async def test_a_call_that_is_refused_keeps_no_other_from_moving(tmp_path: Path):
    refused = await record_call(tmp_path, SESSION)
    other = await record_call(tmp_path, str(uuid.UUID(int=22)))
    async with RefusingOne() as server:
        bucket = RecordingBucket(S3Settings(bucket="one", endpoint=f"http://127.0.0.1:{server.port}"), QUICK)
        uploads = Uploads(tmp_path, bucket)
        with uploads:
            await asyncio.to_thread(until, lambda: not other.exists() and uploads.thread.counts.failures)
    assert refused.exists()
    counts = uploads.thread.counts
    assert (counts.moved, counts.waiting) == (1, 1)


async def test_the_metrics_count_what_has_moved_and_what_has_not(tmp_path: Path, one_server: S3Server):
    path = await record_call(tmp_path, SESSION)
    recordings = CallRecordings(RecordingSettings(folder=tmp_path, s3=one_server.settings), "embedded")
    try:
        await asyncio.to_thread(until, lambda: not path.exists())
        async with application(tmp_path, Turns(), recordings=recordings) as (app, _):
            async with client_of(app, operator=True) as client:
                text = (await client.get("/metrics")).text
    finally:
        await recordings.close()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if "upload" in line and line[0] != "#")
    assert lines == {
        "parley_recordings_awaiting_upload": "0.0",
        "parley_recording_uploads_total": "1.0",
        "parley_recording_upload_failures_total": "0.0",
    }
