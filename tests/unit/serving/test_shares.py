"""Links to a session: who makes them, what they show, and how they end."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from parley.pipelines.call_recording import CallRecordings
from parley.recording.at_rest import KEYS_ENV
from parley.recording.folder import MERGED, TIMELINE
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.share_routes import MOST_RECORDING_EVENTS
from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore
from tests.peers.session_gateway import Turns, application, client_of
from tests.recorded_call import record_call
from tests.safari_player import played_as_by_safari

KEY = "k" * 32
PRIVATE = "private-words-of-the-tool"


class Shared:
    """A session with a recorded call and a link to it.

    Attributes:
        app: the gateway.
        store: of the gateway.
        session: id of the session.
        call: id of its recorded call.
        owner: client that made the link.
        link: answer to its request.
    """

    def __init__(self, app: FastAPI, store: SessionStore, session: str, call: str) -> None:
        self.app, self.store, self.session, self.call = app, store, session, call
        self.owner = client_of(app)
        self.link: dict[str, str] = {}

    async def share(self, **body: int) -> dict[str, str]:
        made = await self.owner.post(f"/api/sessions/{self.session}/shares", json=body)
        assert made.status_code == 201, made.text
        return dict(made.json())

    @asynccontextmanager
    async def visit(
        self, *, share: str | None = None, secret: str | None = None, status: int = 200
    ) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a reader that has tried to open the link, and got this status."""
        async with client_of(self.app, address="203.0.113.9") as reader:
            path = f"/api/shared/{share or self.link['id']}"
            opened = await reader.post(
                path, json={"secret": self.link["secret"] if secret is None else secret}
            )
            assert opened.status_code == status, opened.text
            yield reader

    @property
    def path(self) -> str:
        return f"/api/shared/{self.link['id']}"


async def write(store: SessionStore, session: str, *drafts: tuple[Kind, dict[str, object], str]) -> None:
    writer = await store.claim(session)
    for kind, payload, source in drafts:
        now_us = writer.clock.now_us()
        await writer.append(Draft(kind, payload, now_us, now_us, source))


@pytest_asyncio.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    recordings = CallRecordings(RecordingSettings(folder=tmp_path), "embedded")
    async with application(tmp_path, Turns(), recordings=recordings) as (app, store):
        async with client_of(app) as client:
            session = (await client.post("/api/sessions")).json()["id"]
        path = await record_call(tmp_path, session)
        (path / "user_images").mkdir()
        (path / "frontend_replay.webm").write_bytes(b"private")
        (path / "user_images" / "000000500-0.jpg").write_bytes(b"private")
        await write(
            store,
            session,
            (Kind.USER_TURN, {"text": "hello", "transport": "webrtc", "rendered": PRIVATE}, "user"),
            (Kind.TOOL_CALL, {"call_id": "t", "name": "look_up", "arguments": {"x": PRIVATE}}, "bot"),
            (Kind.BOT_TURN, {"text": "yes", "reply_id": "r", "passages": [{"document": PRIVATE}]}, "bot"),
            (Kind.RECORDING, {"call_id": path.name, "state": "ended"}, "system"),
        )
        made = Shared(app, store, session, path.name)
        made.link = await made.share(expires_s=3_600)
        yield made
        await made.owner.aclose()


async def test_a_reader_without_a_credential_sees_transcript_and_recording(shared: Shared):
    async with shared.visit() as reader:
        turns = (await reader.get(f"{shared.path}/transcript")).json()
        assert [each["payload"]["text"] for each in turns["events"]] == ["hello", "yes"]
        assert turns["after"] is None
        (call,) = (await reader.get(f"{shared.path}/recordings")).json()["calls"]
        assert (call["call_id"], call["has_film"], call["pictures"]) == (shared.call, False, 0)
        assert not call["client_replay"]
        detail = (await reader.get(f"{shared.path}/recordings/{shared.call}")).json()
        assert (detail["pictures"], detail["images"]) == ([], [])
        assert detail["peaks"] and [each["event"] for each in detail["events"]] == ["TurnEnded"]
        sound = await played_as_by_safari(reader, f"{shared.path}/recordings/{shared.call}/replay.wav")
        assert sound.startswith(b"RIFF")
        assert PRIVATE not in str(turns)


async def test_a_link_opens_nothing_else(shared: Shared):
    async with shared.visit() as reader:
        for below in ("events", "prompt", "export", "recordings.zip", "comments", "shares"):
            assert (await reader.get(f"{shared.path}/{below}")).status_code == 404
        for below in ("replay.mp4", "frames/0.jpg", "images/000000500-0.jpg", "replays"):
            found = await reader.get(f"{shared.path}/recordings/{shared.call}/{below}")
            assert found.status_code == 404
        assert (await reader.get(f"{shared.path}/recordings/{'a' * 32}")).status_code == 404
        # Its cookie is sent to the paths of this link alone.
        assert [cookie.path for cookie in reader.cookies.jar] == [shared.path]


@pytest.mark.parametrize(
    "below", ["transcript", "recordings", "recordings/{call}", "recordings/{call}/replay.wav"]
)
async def test_without_the_secret_nothing_is_shown(shared: Shared, below: str):
    path = f"{shared.path}/{below.format(call=shared.call)}"
    async with client_of(shared.app) as reader:
        assert (await reader.get(path)).status_code == 404
        reader.cookies.set("parley_share", shared.link["secret"][:-1] + "~", path=shared.path)
        assert (await reader.get(path)).status_code == 404


async def test_an_altered_a_foreign_and_an_unknown_link_are_not_found(shared: Shared):
    other = await shared.share(expires_s=3_600)
    for share, secret in (
        (None, shared.link["secret"][:-1] + "~"),
        (None, other["secret"]),
        (other["id"], shared.link["secret"]),
        ("0" * 16, shared.link["secret"]),
    ):
        async with shared.visit(share=share, secret=secret, status=404):
            pass
    async with client_of(shared.app) as reader:
        assert (await reader.get(f"/share/{'0' * 16}")).status_code == 404
        assert (await reader.get(f"/share/{shared.link['id']}")).status_code == 200


async def test_a_revoked_link_ends_at_once_also_for_a_reader_who_has_it_open(shared: Shared):
    async with shared.visit() as reader:
        assert (await reader.get(f"{shared.path}/transcript")).status_code == 200
        gone = await shared.owner.delete(f"/api/sessions/{shared.session}/shares/{shared.link['id']}")
        assert gone.status_code == 204
        refused = await reader.get(f"{shared.path}/transcript")
        assert (refused.status_code, "revoked" in refused.text) == (410, True)
        assert (await reader.get(f"/share/{shared.link['id']}")).status_code == 410
    async with shared.visit(status=410):
        pass
    (listed,) = (await shared.owner.get(f"/api/sessions/{shared.session}/shares")).json()["shares"]
    assert (listed["state"], "secret" in listed) == ("revoked", False)


async def test_an_expired_link_says_so(shared: Shared, monkeypatch: pytest.MonkeyPatch):
    later_us = shared.store.wall_us() + 3_600_000_001
    monkeypatch.setattr(shared.store, "_wall_us", lambda: later_us)
    async with shared.visit(status=410) as reader:
        assert (await reader.get(f"/share/{shared.link['id']}")).status_code == 410


async def test_what_comes_after_the_link_is_not_shown(shared: Shared):
    await write(
        shared.store,
        shared.session,
        (Kind.USER_TURN, {"text": "later", "transport": "text"}, "user"),
        (Kind.RECORDING, {"call_id": "b" * 32, "state": "ended"}, "system"),
    )
    async with shared.visit() as reader:
        assert "later" not in (await reader.get(f"{shared.path}/transcript")).text
        assert len((await reader.get(f"{shared.path}/recordings")).json()["calls"]) == 1


async def test_a_call_is_shown_however_many_came_after_the_link(shared: Shared):
    writer = await shared.store.claim(shared.session)
    later_us = writer.clock.now_us() + 120_000_000
    drafts = [
        Draft(
            Kind.RECORDING, {"call_id": f"{n:032x}", "state": "ended"}, later_us + n, later_us + n, "system"
        )
        for n in range(MOST_RECORDING_EVENTS + 1)
    ]
    await writer.append(*drafts)
    async with shared.visit() as reader:
        (call,) = (await reader.get(f"{shared.path}/recordings")).json()["calls"]
    assert call["call_id"] == shared.call


async def test_no_answer_of_a_link_is_indexed_stored_or_named_to_others(shared: Shared):
    async with shared.visit() as reader:
        for path in (f"/share/{shared.link['id']}", f"{shared.path}/transcript", f"{shared.path}/none"):
            headers = (await reader.get(path)).headers
            assert headers["x-robots-tag"].startswith("noindex")
            assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")


async def test_opening_links_is_limited_in_its_rate(shared: Shared):
    answers = []
    async with client_of(shared.app, address="203.0.113.50") as reader:
        while 429 not in answers and len(answers) < 2_000:
            answers.append((await reader.post(shared.path, json={"secret": "x"})).status_code)
    # Tokens come back at one a second, also while the requests are made.
    assert len(answers) > 60 and set(answers) == {404, 429}
    async with shared.visit():
        pass


async def test_with_keys_only_a_reader_of_the_session_makes_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    async with application(tmp_path, Turns()) as (app, _), client_of(app) as client:
        bearer = {"authorization": f"Bearer {KEY}"}
        session = (await client.post("/api/sessions", headers=bearer)).json()["id"]
        path = f"/api/sessions/{session}/shares"
        assert (await client.post(path)).status_code == 401
        link = (await client.post(path, headers=bearer)).json()
        opened = await client.post(f"/api/shared/{link['id']}", json={"secret": link["secret"]})
        assert opened.status_code == 200
        assert (await client.get(f"/api/shared/{link['id']}/recordings")).json() == {"calls": []}
        assert (await client.get(f"/api/sessions/{session}")).status_code == 401


@pytest.mark.parametrize(
    ("days", "seconds", "status"), [(0, 60, 409), (30, 2_592_001, 422), (1, 86_400, 201)]
)
async def test_a_deployment_bounds_the_time_of_links(tmp_path: Path, days: int, seconds: int, status: int):
    async with application(tmp_path, Turns(), max_share_days=days) as (app, _), client_of(app) as client:
        session = (await client.post("/api/sessions")).json()["id"]
        made = await client.post(f"/api/sessions/{session}/shares", json={"expires_s": seconds})
        assert made.status_code == status
        if status == 422:
            assert made.json() == {"error": "body.expires_s: expected a whole number from 60 to 2592000"}
        else:
            # Without a body the link opens for a week, or as long as the deployment permits.
            made = await client.post(f"/api/sessions/{session}/shares")
            assert made.status_code == status


@pytest.mark.parametrize("damage", ["altered", "key"])
async def test_a_recording_that_cannot_be_read_names_neither_its_session_nor_keys(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
):
    monkeypatch.setenv(KEYS_ENV, base64.b64encode(bytes(32)).decode())
    path = await record_call(tmp_path, shared.session, encrypted=True)
    await write(
        shared.store, shared.session, (Kind.RECORDING, {"call_id": path.name, "state": "ended"}, "system")
    )
    shared.link = await shared.share(expires_s=3_600)
    if damage == "altered":
        for name in (TIMELINE, MERGED):
            stored = bytearray((path / name).read_bytes())
            stored[-1] ^= 1
            (path / name).write_bytes(stored)
    else:
        monkeypatch.delenv(KEYS_ENV)
    async with shared.visit() as reader:
        listed = await reader.get(f"{shared.path}/recordings")
        assert "this recording cannot be read" in {each["problem"] for each in listed.json()["calls"]}
        answers = [listed]
        for below in ("", "/replay.wav"):
            answers.append(await reader.get(f"{shared.path}/recordings/{path.name}{below}"))
        assert [each.status_code for each in answers[1:]] == [500 if damage == "altered" else 409] * 2
        for answer in answers:
            assert shared.session not in answer.text and KEYS_ENV not in answer.text
