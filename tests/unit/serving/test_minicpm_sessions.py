"""Save and share of the MiniCPM-o server's pages: a session's recording, uploads to it, and its comment."""

import asyncio
import base64
import io
import json
import os
import time
import wave
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from parley.pipelines.call_recording import CallRecordings
from parley.recording.at_rest import KEYS_ENV
from parley.recording.client_replay import WithheldAudioError, open_client_replay
from parley.recording.retention import IN_USE_S, clean
from parley.recording.settings import RecordingSettings
from parley.recording.uploads import is_receiving
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.minicpm.replay_upload import UPLOADS_PER_MINUTE
from parley.session_store.comments import MOST_COMMENTS, SessionComments
from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore
from tests.client_recordings import FILES, MATROSKA, content_of
from tests.peers.session_gateway import Turns, application, client_of, served
from tests.recorded_call import record_call

KEY, OTHER = "k" * 32, "o" * 32
RECORDING_KEY = base64.b64encode(b"a" * 32).decode()
BOUNDARY = "----WebKitFormBoundaryxyz"


class Shared:
    """A session with one recorded call, at a gateway.

    Attributes:
        client: at the gateway.
        session: path of the session.
        path: folder of the recording.
        store: of the sessions.
    """

    def __init__(self, client: httpx.AsyncClient, session: str, path: Path, store: SessionStore) -> None:
        self.client, self.session, self.path, self.store = client, session, path, store

    @property
    def id(self) -> str:
        return self.session.rpartition("/")[2]

    async def get(self, below: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"{self.session}{below}", headers=headers)

    async def upload(self, content: bytes, media_type: str = "video/webm", **more: Any) -> httpx.Response:
        files = {"file": ("recording.webm", content, media_type)}
        return await self.client.post(f"{self.session}/upload-recording", files=files, **more)

    def files(self) -> set[str]:
        return {each.name for each in self.path.iterdir() if "replay" in each.name}


async def joined(store: SessionStore, session_id: str, call_id: str, transport: str = "duplex_ws") -> None:
    """Record that a call of a session has begun."""
    payload = {"transport": transport, "call_id": call_id}
    writer = await store.claim(session_id)
    await writer.append(Draft(Kind.JOINED, payload, store.wall_us(), store.wall_us(), "system"))


async def recorded(store: SessionStore, folder: Path, session_id: str, **call: Any) -> Path:
    """Hold a recorded call of a session; return the folder of the recording."""
    path = await record_call(folder, session_id, **call)
    await joined(store, session_id, path.name)
    return path


@asynccontextmanager
async def sharing(folder: Path, transport: str = "duplex_ws", **recording: Any) -> AsyncIterator[Shared]:
    settings = RecordingSettings(**{"enabled": True, "folder": folder, "min_free_gb": 0, **recording})
    recordings = CallRecordings(settings, "embedded")
    async with (
        application(folder, Turns(), recordings=recordings) as (app, store),
        client_of(app) as client,
    ):
        session = (await client.post("/api/sessions")).json()["id"]
        path = await recorded(store, folder, session, encrypted=settings.encrypted, transport=transport)
        yield Shared(client, f"/api/sessions/{session}", path, store)
    await recordings.close()


@pytest_asyncio.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    async with sharing(tmp_path) as found:
        yield found


async def test_a_full_duplex_call_has_the_form_of_that_servers_files(shared: Shared):
    meta = (await shared.get("/meta")).json()
    assert (meta["session_id"], meta["app_type"]) == (shared.id, "audio_duplex")
    assert meta["created_at"] < meta["ended_at"] and meta["duration_s"] == 1.0
    recording = (await shared.get("/recording")).json()
    assert (recording["mode"], recording["merged_replay"]) == ("duplex", "merged_replay.wav")
    (chunk,) = recording["chunks"]
    assert (chunk["index"], chunk["result"]["mode"]) == (0, "SPEAK")
    # What it names is there.
    for name in (chunk["user_audio"], chunk["result"]["ai_audio"]):
        found = await shared.get(f"/assets/{name}")
        assert (found.status_code, found.headers["content-type"]) == (200, "audio/flac")
        assert found.content == (shared.path / name).read_bytes()
    part = await shared.get("/assets/merged_replay.wav", range="bytes=0-3")
    assert (part.status_code, part.content) == (206, b"RIFF")


async def test_a_call_by_turns_has_its_turns(tmp_path: Path):
    async with sharing(tmp_path, "half_duplex") as shared:
        assert (await shared.get("/meta")).json()["app_type"] == "half_duplex_audio"
        recording = (await shared.get("/recording")).json()
    assert (recording["mode"], recording["turns"][0]["input"]) == ("half_duplex_audio", {"text": "hello"})
    assert "chunks" not in recording


async def test_a_session_without_a_call_has_its_turns_in_words(tmp_path: Path):
    async with application(tmp_path, Turns()) as (app, _), client_of(app) as client:
        session = (await client.post("/api/sessions")).json()["id"]
        assert (await client.get(f"/api/sessions/{session}/meta")).json()["app_type"] == "chat"
        found = (await client.get(f"/api/sessions/{session}/recording")).json()
        assert (found["mode"], found["turns"], found["session_id"]) == ("chat", [], session)
        # A server without recordings takes none either.
        assert (await client.post(f"/api/sessions/{session}/upload-recording")).status_code == 404


async def test_a_clients_own_recording_is_kept_with_the_call_and_read_in_parts(shared: Shared):
    for media_type, (ending, _) in FILES.items():
        content, name = content_of(media_type), f"frontend_replay.{ending}"
        answer = await shared.upload(content, f"{media_type};codecs=opus")
        assert answer.status_code == 200, media_type
        assert answer.json() == {"status": "ok", "path": name, "size_bytes": len(content)}
        assert (shared.path / name).read_bytes() == content
        part = await shared.get(f"/assets/{name}", range="bytes=100-199")
        assert (part.status_code, part.content) == (206, content[100:200])
        assert part.headers["x-content-type-options"] == "nosniff"
    archive = zipfile.ZipFile(io.BytesIO((await shared.get("/download")).content))
    assert archive.read(f"{shared.path.name}/{name}") == content


async def test_another_recording_of_the_same_kind_replaces_the_first(shared: Shared):
    await shared.upload(content_of("video/webm", 90_000))
    await shared.upload(content_of("audio/webm", 1_000), "audio/webm")
    assert (shared.path / "frontend_replay.webm").read_bytes() == content_of("audio/webm", 1_000)
    assert shared.files() == {"frontend_replay.webm", "merged_replay.wav"}


async def test_a_file_that_is_not_what_it_says_is_refused(shared: Shared):
    for content, media_type, says in (
        (content_of("video/mp4"), "video/webm", "not what it says"),
        (content_of("video/webm"), "audio/wav", "not what it says"),
        (MATROSKA, "video/webm", "not what it says"),
        (b"<script>alert(1)</script>" * 9, "video/webm", "not what it says"),
        (b"", "video/webm", "not what it says"),
        (b"\x1a\x45", "video/webm", "not what it says"),
        (content_of("video/webm"), "text/html", "is not accepted"),
        (content_of("video/webm"), "", "is not accepted"),
    ):
        refused = await shared.upload(content, media_type)
        assert refused.status_code == 400 and says in refused.json()["error"], (content[:20], media_type)
    assert shared.files() == {"merged_replay.wav"}


async def test_a_file_that_is_too_large_leaves_nothing(tmp_path: Path):
    async with sharing(tmp_path, max_replay_mb=1) as shared:
        assert (await shared.upload(content_of("video/webm", 1_000_000))).status_code == 200
        kept = (shared.path / "frontend_replay.webm").read_bytes()
        # Over the bound by a byte, which the length of the form does not tell; and by its declared length.
        for length in (1_000_001, 2_000_000):
            refused = await shared.upload(content_of("video/webm", length))
            assert refused.status_code == 413
        assert (shared.path / "frontend_replay.webm").read_bytes() == kept
        assert shared.files() == {"frontend_replay.webm", "merged_replay.wav"}


async def test_a_deployment_may_accept_none_and_a_full_disk_takes_none(tmp_path: Path):
    (tmp_path / "none").mkdir()
    async with sharing(tmp_path / "none", max_replay_mb=0) as shared:
        assert (await shared.upload(content_of("video/webm"))).status_code == 404
    full = RecordingSettings(enabled=True, folder=tmp_path / "full", min_free_gb=1e9)
    (tmp_path / "full").mkdir()
    recordings = CallRecordings(full, "embedded")
    async with (
        application(tmp_path, Turns(), recordings=recordings) as (app, store),
        client_of(app) as client,
    ):
        session = (await client.post("/api/sessions")).json()["id"]
        path = await recorded(store, full.folder, session)
        shared = Shared(client, f"/api/sessions/{session}", path, store)
        refused = await shared.upload(content_of("video/webm"))
        assert refused.status_code == 503 and str(tmp_path) not in refused.text
        assert shared.files() == {"merged_replay.wav"}
    await recordings.close()


async def test_a_body_that_is_no_form_with_a_file_is_refused(shared: Shared):
    of_form = f"multipart/form-data; boundary={BOUNDARY}"
    disposition = 'Content-Disposition: form-data; name="file"'
    for body, content_type in (
        ("no form", "application/json"),
        ("no form", "multipart/form-data"),
        ("no form", of_form),
        (f"--{BOUNDARY}--\r\n", of_form),
        (f"--{BOUNDARY}\r\n{disposition}\r\n\r\nx\r\n--{BOUNDARY}--", of_form),
        (f"--{BOUNDARY}\r\nX: {'y' * 9_000}\r\n\r\nx\r\n--{BOUNDARY}--", of_form),
    ):
        refused = await shared.client.post(
            f"{shared.session}/upload-recording", content=body, headers={"content-type": content_type}
        )
        assert refused.status_code == 400 and refused.json()["error"], body[:60]
    assert shared.files() == {"merged_replay.wav"}


def form(content: bytes, *, ends: bool = True) -> bytes:
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="../../x.webm"\r\n'
        "Content-Type: video/webm\r\n\r\n"
    )
    return head.encode() + content + (f"\r\n--{BOUNDARY}--\r\n".encode() if ends else b"")


async def test_a_call_that_leaves_something_out_gets_no_recording_that_has_it(tmp_path: Path):
    async with sharing(tmp_path) as shared:
        files = {name: shared.path / name for name in ("meta.json", "recording.json")}
        facts = {name: json.loads(path.read_text()) for name, path in files.items()}
        pause = {"at_ms": 100, "event": "PrivatePauseBegan", "by": "operator"}
        for name, more in (
            ("meta.json", {"redaction": {"kinds": ["card_number"], "replaced_by": "silence"}}),
            ("recording.json", {"events": [*facts["recording.json"]["events"], pause]}),
        ):
            files[name].write_text(json.dumps({**facts[name], **more}))
            refused = await shared.upload(content_of("video/webm"))
            assert refused.status_code == 403 and refused.json()["error"], name
            assert shared.files() == {"merged_replay.wav"}
            files[name].write_text(json.dumps(facts[name]))
        assert (await shared.upload(content_of("video/webm"))).status_code == 200
        # A pause that begins while the file arrives.
        settings = RecordingSettings(folder=tmp_path, min_free_gb=0)
        writer = open_client_replay(settings, shared.id, shared.path.name, "mp4", None)
        writer.write(content_of("video/mp4"))
        files["recording.json"].write_text(json.dumps({**facts["recording.json"], "events": [pause]}))
        with pytest.raises(WithheldAudioError) as withheld:
            writer.finish()
        writer.discard(withheld.value)
        assert shared.files() == {"merged_replay.wav", "frontend_replay.webm"}


async def test_a_call_that_was_not_recorded_gets_none_in_the_place_of_an_earlier_one(shared: Shared):
    earlier = content_of("video/webm", 1_000)
    assert (await shared.upload(earlier)).status_code == 200
    # Its camera is no call of its own.
    await joined(shared.store, shared.id, shared.path.name, "camera")
    assert (await shared.upload(earlier)).status_code == 200
    await joined(shared.store, shared.id, "e" * 32)
    refused = await shared.upload(content_of("video/webm"))
    assert refused.status_code == 404 and "was not recorded" in refused.json()["error"]
    assert (shared.path / "frontend_replay.webm").read_bytes() == earlier


async def test_a_deployment_that_records_no_more_takes_none_for_an_earlier_call(tmp_path: Path):
    async with sharing(tmp_path, enabled=False) as shared:
        assert (await shared.get("/assets/merged_replay.wav")).status_code == 200
        assert (await shared.upload(content_of("video/webm"))).status_code == 404
        assert shared.files() == {"merged_replay.wav"}


async def test_a_call_with_a_pause_from_before_its_recording_gets_none(shared: Shared):
    timeline = shared.path / "recording.json"
    facts = json.loads(timeline.read_text())
    assert facts["had_pause"] is False
    timeline.write_text(json.dumps({**facts, "had_pause": True}))
    assert (await shared.upload(content_of("video/webm"))).status_code == 403
    assert shared.files() == {"merged_replay.wav"}


async def test_a_refused_upload_that_is_long_is_read_to_its_end(tmp_path: Path):
    async with sharing(tmp_path, max_replay_mb=30) as shared:
        body, sent = form(b"no recording" + bytes(29_000_000)), 0

        async def pieces() -> AsyncIterator[bytes]:
            nonlocal sent
            for start in range(0, len(body), 500_000):
                yield body[start : start + 500_000]
                sent += len(body[start : start + 500_000])

        headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
        refused = await shared.client.post(
            f"{shared.session}/upload-recording", content=pieces(), headers=headers
        )
        assert refused.status_code == 400 and sent == len(body)


async def test_other_fields_and_files_of_a_form_are_ignored(shared: Shared):
    content = content_of("video/webm")
    later = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="b.webm"\r\n'
    earlier = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="app"\r\n\r\nomni\r\n'
    body = earlier.encode() + form(content)[: -len(f"--{BOUNDARY}--\r\n")] + later.encode()
    body += b"Content-Type: video/webm\r\n\r\n" + bytes(100_000) + f"\r\n--{BOUNDARY}--\r\n".encode()
    answer = await shared.client.post(
        f"{shared.session}/upload-recording",
        content=body,
        headers={"content-type": f"multipart/form-data; boundary={BOUNDARY}"},
    )
    assert answer.json()["size_bytes"] == len(content)
    assert (shared.path / "frontend_replay.webm").read_bytes() == content


async def test_a_form_whose_end_is_missing_leaves_nothing(shared: Shared):
    refused = await shared.client.post(
        f"{shared.session}/upload-recording",
        content=form(content_of("video/webm"), ends=False),
        headers={"content-type": f"multipart/form-data; boundary={BOUNDARY}"},
    )
    assert refused.status_code == 400 and "cut off" in refused.json()["error"]
    assert shared.files() == {"merged_replay.wav"}


async def test_an_upload_that_is_cut_in_the_middle_leaves_nothing_and_its_session_may_be_deleted(
    tmp_path: Path,
):
    recordings = CallRecordings(RecordingSettings(enabled=True, folder=tmp_path, min_free_gb=0), "embedded")
    async with application(tmp_path, Turns(), recordings=recordings, body_s=5) as (app, store):
        async with served(app) as server, httpx.AsyncClient(base_url=server.url) as client:
            session = (await client.post("/api/sessions")).json()["id"]
            path = await recorded(store, tmp_path, session)
            address = f"/api/sessions/{session}/upload-recording"
            part = form(content_of("video/webm", 3_000_000))
            headers = (
                "Content-Type: multipart/form-data; boundary=" + BOUNDARY,
                "Transfer-Encoding: chunked",
            )
            cut = await server.send("POST", address, b"", *headers)
            cut.write(f"{len(part):x}\r\n".encode() + part[:2_500_000])
            await cut.drain()
            await until(lambda: is_receiving(path))
            cut.transport.abort()
            await until(lambda: not is_receiving(path))
            assert not list(path.glob("*frontend*")) and not list(path.glob(".*"))
            # The session is deleted while another one arrives.
            late = await server.send("POST", address, b"", *headers)
            late.write(f"{len(part):x}\r\n".encode() + part[:2_500_000])
            await late.drain()
            await until(lambda: is_receiving(path))
            assert (await client.delete(f"/api/sessions/{session}")).status_code == 200
            late.write(part[2_500_000:] + b"\r\n0\r\n\r\n")
            await late.drain()
            await until(lambda: not list((tmp_path / "sessions").iterdir()))
            late.transport.abort()
    await recordings.close()


async def test_an_upload_that_stalls_and_one_whose_server_stops_leave_nothing(tmp_path: Path):
    stalled, body = asyncio.Event(), form(content_of("video/webm", 3_000_000))

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, 2_500_000, 250_000):
            yield body[start : start + 250_000]
        stalled.set()
        await asyncio.Event().wait()

    recordings = CallRecordings(RecordingSettings(enabled=True, folder=tmp_path, min_free_gb=0), "embedded")
    async with application(tmp_path, Turns(), recordings=recordings, body_s=0.5) as (app, store):
        async with served(app) as server, httpx.AsyncClient(base_url=server.url) as client:
            session = (await client.post("/api/sessions")).json()["id"]
            path = await recorded(store, tmp_path, session)
            headers = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
            upload = client.build_request(
                "POST", f"/api/sessions/{session}/upload-recording", content=pieces(), headers=headers
            )
            sending = asyncio.create_task(client.send(upload))
            await stalled.wait()
            # Too slow: it is refused, and what came is removed.
            await until(lambda: not is_receiving(path))
            sending.cancel()
            await asyncio.wait({sending})
        # Without a socket between them, the end of the task is the end of the request.
        stalled.clear()
        async with client_of(app) as client:
            upload = client.build_request("POST", upload.url.path, content=pieces(), headers=headers)
            stopped = asyncio.create_task(client.send(upload))
            await stalled.wait()
            stopped.cancel()
            await asyncio.wait({stopped})
        await until(lambda: not is_receiving(path))
        assert not list(path.glob("*frontend*")) and not list(path.glob(".*"))
    await recordings.close()


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_an_encrypted_call_has_its_clients_recording_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(KEYS_ENV, RECORDING_KEY)
    async with sharing(tmp_path, encrypted=True) as shared:
        content = content_of("video/webm")
        assert (await shared.upload(content)).status_code == 200
        stored = (shared.path / "frontend_replay.webm").read_bytes()
        assert content[:32] not in stored and content[1_000:1_100] not in stored
        part = await shared.get("/assets/frontend_replay.webm", range="bytes=70000-70009")
        assert part.content == content[70_000:70_010]
        archive = zipfile.ZipFile(io.BytesIO((await shared.get("/download")).content))
        assert archive.read(f"{shared.path.name}/frontend_replay.webm") == content


async def test_a_clients_recording_goes_with_its_session(tmp_path: Path):
    async with sharing(tmp_path) as shared:
        await shared.upload(content_of("video/webm"))
        for name in ("meta.json", "frontend_replay.webm", ""):
            os.utime(shared.path / name, times=(1, 1))
        for path in (*shared.path.rglob("*"), shared.path, shared.path.parent):
            os.utime(path, times=(1, 1))
        report = clean(tmp_path, retention_days=1, now_s=time.time() + 2 * IN_USE_S)
        assert [each.session_id for each in report.removed] == [shared.id] and not report.kept
        # The session is still there; its recordings are not.
        assert (await shared.upload(content_of("video/webm"))).status_code == 404
    (tmp_path / "deleted").mkdir()
    async with sharing(tmp_path / "deleted") as shared:
        await shared.upload(content_of("video/webm"))
        deleted = await shared.client.delete(shared.session)
        assert deleted.json()["removed"]["recordings"]["calls"] == 1
        assert not shared.path.parent.exists()
        assert (await shared.upload(content_of("video/webm"))).status_code == 404
        assert (await shared.get("/comment")).status_code == 404


async def test_names_that_are_no_media_file_of_the_call_are_404(shared: Shared):
    for below in (
        "..%2Fmeta.json",
        "%2e%2e/meta.json",
        "meta.json",
        "recording.json",
        "frontend_replay.webm",
        "user_audio/..%2F..%2Fmeta.json",
        "user_audio/000009.flac",
        "..%2F..%2Fx/y.wav",
        ".%2Fmerged_replay.wav",
        "/etc/passwd",
        "merged_replay.wav%00",
    ):
        answer = await shared.get(f"/assets/{below}")
        assert answer.status_code == 404, below
        assert str(shared.path.parents[2]) not in answer.text


async def test_a_link_in_the_folder_of_a_call_is_not_followed(shared: Shared, tmp_path: Path):
    (tmp_path / "secret.wav").write_bytes(b"secret")
    (shared.path / "frontend_replay.wav").symlink_to(tmp_path / "secret.wav")
    (shared.path / "user_audio" / "000007.flac").symlink_to(tmp_path / "secret.wav")
    assert (await shared.get("/assets/frontend_replay.wav")).status_code == 404
    assert (await shared.get("/assets/user_audio/000007.flac")).status_code == 404
    with zipfile.ZipFile(io.BytesIO((await shared.get("/download")).content)) as archive:
        assert not any(b"secret" in archive.read(name) for name in archive.namelist())


async def test_the_comment_on_a_whole_session_is_written_replaced_and_removed(shared: Shared):
    address = f"{shared.session}/comment"
    assert (await shared.get("/comment")).json() == {"comment": ""}
    for text in ("Good.", "  Very good.  "):
        written = await shared.client.post(address, json={"comment": text})
        assert written.json() == {"status": "ok", "len": len(text.strip())}
    assert (await shared.get("/comment")).json() == {"comment": "Very good."}
    # It is one of the comments of the session, and others are not touched by it.
    other = {"at_us": 7, "text": "Here."}
    assert (await shared.client.post(f"{shared.session}/comments", json=other)).status_code == 201
    (await shared.client.post(address, json={"comment": ""})).raise_for_status()
    assert (await shared.get("/comment")).json() == {"comment": ""}
    left = (await shared.get("/comments")).json()["comments"]
    assert [each["text"] for each in left] == ["Here."]


async def test_a_comment_is_replaced_at_the_bound_of_comments_and_each_deletion_is_audited(tmp_path: Path):
    acts = tmp_path / "audit.jsonl"
    audit = AuditLog(acts)
    async with application(tmp_path, Turns(), audit=audit) as (app, store), client_of(app) as client:
        session = (await client.post("/api/sessions")).json()["id"]
        address = f"/api/sessions/{session}/comment"
        assert (await client.post(address, json={"comment": "Good."})).status_code == 200
        comments = SessionComments(store)
        (first,) = await comments.of_session(session)
        for _ in range(MOST_COMMENTS - 1):
            await comments.add(session, at_us=7, author="", name="", text="Here.")
        assert (await client.post(address, json={"comment": "Better."})).status_code == 200
        assert (await client.get(address)).json() == {"comment": "Better."}
        (second,) = [each for each in await comments.of_session(session) if each.text == "Better."]
        assert (await client.post(address, json={"comment": ""})).status_code == 200
    await asyncio.to_thread(audit.close)
    lines = [json.loads(line) for line in acts.read_text().splitlines()]
    deleted = [each for each in lines if each["act"] == "session.comment_deleted"]
    assert [each["comment"] for each in deleted] == [first.id, second.id]
    assert all((each["session"], each["by"]) == (session[:8], "author") for each in deleted)


async def test_a_comment_that_is_none_is_refused(shared: Shared):
    cases: tuple[tuple[Any, int], ...] = (
        ({"comment": "x" * 2_001}, 413),
        ({"comment": "x\0y"}, 422),
        ({"comment": 7}, 422),
        ([], 422),
    )
    for body, status in cases:
        refused = await shared.client.post(f"{shared.session}/comment", json=body)
        assert refused.status_code == status, body
    assert (await shared.get("/comment")).json() == {"comment": ""}


async def test_with_keys_a_stranger_who_knows_the_id_reads_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", f"{KEY},{OTHER}")
    recordings = CallRecordings(RecordingSettings(enabled=True, folder=tmp_path, min_free_gb=0), "embedded")
    async with (
        application(tmp_path, Turns(), recordings=recordings) as (app, store),
        client_of(app) as client,
    ):
        mine, other = ({"authorization": f"Bearer {key}"} for key in (KEY, OTHER))
        session = (await client.post("/api/sessions", headers=mine)).json()["id"]
        path = await recorded(store, tmp_path, session)
        shared = Shared(client, f"/api/sessions/{session}", path, store)
        for below in ("/meta", "/recording", "/assets/merged_replay.wav", "/download", "/comment"):
            address = f"/api/sessions/{session}{below}"
            assert (await client.get(address)).status_code == 401
            assert (await client.get(address, headers=other)).status_code == 403
            assert (await client.get(address, headers=mine)).status_code == 200
        assert (await client.head(f"{shared.session}/assets/merged_replay.wav")).status_code == 401
        for headers, status in (({}, 401), (other, 403), (mine, 200)):
            content = content_of("video/webm")
            assert (await shared.upload(content, headers=headers)).status_code == status
            assert shared.files() == {"merged_replay.wav"} | (
                {"frontend_replay.webm"} if status == 200 else set()
            )
            comment = {"json": {"comment": "Mine."}, "headers": headers}
            assert (await client.post(f"{shared.session}/comment", **comment)).status_code == status
    await recordings.close()


async def test_one_address_uploads_a_bounded_number_of_recordings_in_a_minute(shared: Shared):
    for _ in range(UPLOADS_PER_MINUTE):
        assert (await shared.upload(content_of("video/webm", 100))).status_code == 200
    refused = await shared.upload(content_of("video/webm", 100))
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0


async def test_the_page_of_a_session_offers_a_clients_recording(shared: Shared):
    content = content_of("video/mp4")
    await shared.upload(content, "video/mp4")
    (call,) = (await shared.get("/recordings")).json()["calls"]
    assert call["client_replay"] == "frontend_replay.mp4"
    part = await shared.get(f"/recordings/{shared.path.name}/client-replay", range="bytes=5-9")
    assert (part.status_code, part.content, part.headers["content-type"]) == (206, content[5:10], "video/mp4")
    other = await shared.get(f"/recordings/{'a' * 32}/client-replay")
    assert other.status_code == 404


async def test_the_newest_call_that_has_a_file_is_read(shared: Shared, tmp_path: Path):
    await shared.upload(content_of("video/webm"))
    newest = await recorded(shared.store, tmp_path, shared.id, seconds=0.5, call_id="f" * 32)
    replay = await shared.get("/assets/merged_replay.wav")
    with wave.open(io.BytesIO(replay.content)) as sound:
        assert sound.getnframes() == 8_000
    assert not (newest / "frontend_replay.webm").exists()
    assert (await shared.get("/assets/frontend_replay.webm")).content == content_of("video/webm")
