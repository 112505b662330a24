"""Everything of a person is removed, by each of their names; nothing of them is left, and the others stay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.core.errors import EngineError, UnknownSessionError
from parley.core.grants import ANONYMOUS
from parley.pipelines.call_recording import CallRecordings
from parley.protocols.phone_numbers import number_digest, person_digest
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.auth.client_keys import ClientKeys
from parley.serving.gateway.auth.tenant_settings import TenantsSettings
from parley.serving.gateway.person_erasure import NamedPerson, PersonEraser
from parley.serving.gateway.phone.caller_settings import CallerSettings
from parley.serving.gateway.session_erasure import SessionEraser
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.comments import SessionComments
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.events import Draft, Kind
from parley.session_store.people import SessionsOfPeople
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.contracts.test_people import rows_of
from tests.contracts.test_session_store import url  # noqa: F401
from tests.peers.operations_gateway import BEARER
from tests.peers.postgres import postgres, postgres_url  # noqa: F401
from tests.peers.session_gateway import LINE, Turns, application, client_of
from tests.recorded_call import record_call
from tests.unit.serving.test_audit import Acts

PATH = "/api/people/forget"
CALLER_KEY = "k" * 32
ADA, EVE = "+15550100", "+15550123"
KEY = "a-key-of-an-application-" + "x" * 16
ANY = CallerSettings(trust="any")
WORDS = "My name is Ada."


class Contexts:
    """Workers that keep a context of some sessions.

    Attributes:
        kept: those sessions.
        fails: a worker does not answer.
    """

    def __init__(self, *, fails: bool = False) -> None:
        self.kept: set[str] = set()
        self.fails = fails

    async def forget(self, session_id: str) -> int:
        if self.fails:
            raise EngineError("1 of 1 workers did not confirm", engine="worker")
        was_kept = session_id in self.kept
        self.kept.discard(session_id)
        return int(was_kept)


@pytest.fixture(autouse=True)
def caller_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_CALLER_KEY", CALLER_KEY)


@asynccontextmanager
async def gateway(
    folder: Path, **more: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, SessionStore, CallRecordings]]:
    """Run a gateway that records; yield a client of an operator, the store and the recordings."""
    (folder / "recordings").mkdir()
    recordings = CallRecordings(
        RecordingSettings(enabled=True, folder=folder / "recordings", min_free_gb=0), "embedded"
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(recordings.close)
        entered = application(folder, Turns(), recordings=recordings, **{"callers": ANY, **more})
        app, store = await stack.enter_async_context(entered)
        yield await stack.enter_async_context(client_of(app, operator=True)), store, recordings


async def talked(store: SessionStore, folder: Path, *, owner: str | None = None) -> str:
    """Return a session with words, a comment and a recorded call."""
    session = (await store.create(owner=owner)).id
    writer = await store.claim(session)
    now_us = store.wall_us()
    await writer.append(Draft(Kind.USER_TURN, {"text": WORDS}, now_us, now_us, "user"))
    await SessionComments(store).add(session, at_us=1, author="", name="", text="She sounds sad.")
    await record_call(folder / "recordings", session)
    return session


async def called(store: SessionStore, folder: Path, number: str) -> str:
    """Return a session of a caller, as the call of a phone leaves it."""
    session = await talked(store, folder)
    await SessionsOfPeople(store).note_caller(session, person_digest(CALLER_KEY.encode(), number))
    return session


def files_with(folder: Path, *parts: str) -> list[str]:
    """Return the files below a folder that have any of these texts in their names or contents."""
    found = []
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if any(part in str(path) or part.encode() in content for part in parts):
            found.append(str(path.relative_to(folder)))
    return found


async def test_everything_of_a_caller_is_removed_and_counted(tmp_path: Path, url: str):  # noqa: F811
    contexts, acts = Contexts(), Acts()
    async with gateway(tmp_path, contexts=contexts, audit=acts, url=url) as (client, store, _):
        first, second = [await called(store, tmp_path, ADA) for _ in range(2)]
        # The session of the number's next call, of a release that noted no people.
        third = await talked(store, tmp_path)
        await store.link_caller(third, number_digest(CALLER_KEY.encode(), ADA, LINE), forget_days=1)
        other = await called(store, tmp_path, EVE)
        contexts.kept = {first, other}
        wanted = {"number": "+1 555 0100"}
        counted = (await client.post(PATH, json={**wanted, "dry_run": True})).json()
        assert sorted(counted["sessions"]) == sorted([first, second, third]) and counted["dry_run"]
        assert counted["removed"]["events"] == 3 and await store.info(first)
        answer = await client.post(PATH, json=wanted)
        assert answer.status_code == 200
        forgotten = answer.json()
        assert sorted(forgotten["sessions"]) == sorted([first, second, third])
        assert not (forgotten["more"] or forgotten["pending"] or forgotten["dry_run"])
        recorded = forgotten["removed"].pop("recordings")
        assert recorded["calls"] == 3 and recorded["files"] >= 9 and recorded["bytes"] > 0
        assert {kind: count for kind, count in forgotten["removed"].items() if count} == {
            "sessions": 3,
            "events": 3,
            "comments": 3,
            "numbers": 3,
            "contexts": 1,
        }
        for session in (first, second, third):
            assert await rows_of(url, session) == {}
            assert (await client.get(f"/api/sessions/{session}")).status_code == 404
            assert (await client.get(f"/api/sessions/{session}/recordings")).json() == {"calls": []}
        assert files_with(tmp_path / "recordings", first, second, third) == []
        if url.startswith("sqlite"):
            # The other person has said the same words.
            assert files_with(tmp_path, first, second, third) == []
        # Of the other person everything is there.
        assert contexts.kept == {other}
        assert (await rows_of(url, other)).keys() >= {"session", "event", "caller_session"}
        assert files_with(tmp_path / "recordings", other)
        again = (await client.post(PATH, json=wanted)).json()
        assert again["sessions"] == [] and not again["more"]
    named = [facts for act, facts in acts.acts if act == "person.forgotten"]
    assert named == [{"address": "127.0.0.1", "named_by": "number", "sessions": count} for count in (3, 0)]


async def test_a_browser_is_forgotten_by_one_of_its_sessions(tmp_path: Path):
    async with gateway(tmp_path, callers=None) as (client, store, _):
        page = httpx.AsyncClient(transport=client._transport, base_url="http://localhost")
        mine = [(await page.post("/api/sessions")).json()["id"] for _ in range(2)]
        other = (await store.create(owner=f"browser.{'0' * 32}")).id
        forgotten = (await client.post(PATH, json={"session": mine[0]})).json()
        assert sorted(forgotten["sessions"]) == sorted(mine)
        assert [info.id for info in await store.sessions(limit=10)] == [other]
        assert (await client.post(PATH, json={"owner": f"browser.{'0' * 32}"})).json()["sessions"] == [other]
        assert await store.sessions(limit=10) == []


async def test_a_user_of_an_application_is_forgotten_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    async with gateway(tmp_path) as (client, store, _):
        sessions = {}
        for name in ("ann", "bob"):
            bearer = {"Authorization": f"Bearer {KEY}"}
            token = (await client.post("/api/token", json={"user": name}, headers=bearer)).json()["token"]
            made = await client.post("/api/sessions", headers={"Authorization": f"Bearer {token}"})
            sessions[name] = made.json()["id"]
        elsewhere = {"user": "ann", "tenant": "of another"}
        refused = await client.post(PATH, json=elsewhere)
        assert refused.status_code == 400 and "no key of such an application" in refused.json()["error"]
        forgotten = (await client.post(PATH, json={"user": "ann"})).json()
        assert forgotten["sessions"] == [sessions["ann"]]
        assert [info.id for info in await store.sessions(limit=10)] == [sessions["bob"]]


async def test_a_user_of_another_tenant_with_the_same_name_is_another_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", KEY)
    monkeypatch.setenv("ACME_KEYS", KEY[::-1])
    tenants = TenantsSettings(named={"acme": {"keys_env": "ACME_KEYS"}})
    async with gateway(tmp_path, tenants=tenants) as (client, store, _):
        sessions = []
        for key in (KEY, KEY[::-1]):
            bearer = {"Authorization": f"Bearer {key}"}
            token = (await client.post("/api/token", json={"user": "ann"}, headers=bearer)).json()["token"]
            made = await client.post("/api/sessions", headers={"Authorization": f"Bearer {token}"})
            sessions.append(made.json()["id"])
        refused = await client.post(PATH, json={"user": "ann"})
        assert refused.status_code == 400 and "name the tenant" in refused.json()["error"]
        assert len(await store.sessions(limit=10)) == 2
        for tenant, session in zip(("", "acme"), sessions, strict=True):
            forgotten = (await client.post(PATH, json={"user": "ann", "tenant": tenant})).json()
            assert forgotten["sessions"] == [session]


class CallsAgain:
    """Workers; while they drop the context of a session, its person calls again, once."""

    def __init__(self) -> None:
        self.store: SessionStore | None = None

    async def forget(self, session_id: str) -> int:
        store, self.store = self.store, None
        if store is not None:
            await SessionsOfPeople(store).note_caller((await store.create()).id, "ada")
        return 0


def eraser_of(store: SessionStore, conversations: Conversations, most_erased: int) -> PersonEraser:
    keys = ClientKeys(ServerTuning())
    return PersonEraser(store, SessionEraser(conversations, Acts()), keys, most_erased=most_erased)


async def test_a_person_who_calls_again_is_found_although_the_session_that_names_them_is_gone(tmp_path: Path):
    contexts = CallsAgain()
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    conversations = Conversations(store, compactor=Compactor(), contexts=contexts)
    try:
        session, contexts.store = (await store.create()).id, store
        await SessionsOfPeople(store).note_caller(session, "ada")
        eraser = eraser_of(store, conversations, 10)
        forgotten = await eraser.forget(NamedPerson(session=session), by=ANONYMOUS)
        assert len(forgotten.sessions) == 2 and not forgotten.more
        assert await store.sessions(limit=10) == []
    finally:
        await conversations.close()
        await store.close()


@pytest.mark.parametrize("linked", [False, True])
async def test_a_person_of_more_sessions_than_a_request_takes_is_forgotten_by_the_next_ones(
    tmp_path: Path, linked: bool
):
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    conversations = Conversations(store, compactor=Compactor())
    try:
        people, browser = SessionsOfPeople(store), f"browser.{'a' * 32}"
        # One leads to the next: by its number, by its browser, and by a number of that.
        chain = [(await store.create(owner=owner)).id for owner in (None, browser, browser, None)]
        for place, number in ((0, "ada"), (1, "ada"), (2, "her work"), (3, "her work")):
            await people.note_caller(chain[place], number)
        eraser, order = eraser_of(store, conversations, 1), list[str]()
        person, more = NamedPerson(session=chain[0], linked=linked), True
        while more:
            forgotten = await eraser.forget(person, by=ANONYMOUS)
            order += forgotten.sessions
            more = forgotten.more
        assert order == (chain[::-1] if linked else [chain[1], chain[0]])
    finally:
        await conversations.close()
        await store.close()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"number": ADA, "session": "5d1c2d0e-0000-4000-8000-000000000000"},
        {"session": "../../etc"},
        {"owner": "%"},
        {"owner": "b" * 32},
        {"user": "ann", "called": LINE},
        {"number": ADA, "tenant": "one"},
        {"number": ADA, "everything": True},
    ],
)
async def test_a_body_that_names_no_one_person_is_refused(tmp_path: Path, body: dict[str, object]):
    async with gateway(tmp_path) as (client, _, _):
        assert (await client.post(PATH, json=body)).status_code == 422


@pytest.mark.parametrize("number", ["anonymous", "+266696687", "12"])
async def test_a_number_that_identifies_no_caller_is_refused(tmp_path: Path, number: str):
    async with gateway(tmp_path) as (client, store, _):
        await called(store, tmp_path, ADA)
        refused = await client.post(PATH, json={"number": number})
        assert refused.status_code == 400 and "number:" in refused.json()["error"]
        assert len(await store.sessions(limit=10)) == 1


async def test_without_numbers_or_keys_the_reason_is_named(tmp_path: Path):
    async with gateway(tmp_path, callers=None) as (client, _, _):
        for body, reason in (({"number": ADA}, "no phone calls"), ({"user": "ann"}, "no key")):
            refused = await client.post(PATH, json=body)
            assert refused.status_code == 400 and reason in refused.json()["error"]


async def test_only_an_operator_forgets_a_person(tmp_path: Path):
    async with gateway(tmp_path) as (client, store, _):
        session = await called(store, tmp_path, ADA)
        stranger = httpx.AsyncClient(transport=client._transport, base_url="http://localhost")
        assert (await stranger.post(PATH, json={"number": ADA})).status_code in (401, 403)
        foreign = {**BEARER, "Origin": "http://evil.example"}
        assert (await stranger.post(PATH, json={"number": ADA}, headers=foreign)).status_code == 403
        assert await store.info(session)


async def test_a_worker_that_does_not_answer_is_pending_and_the_rest_is_removed(tmp_path: Path):
    async with gateway(tmp_path, contexts=Contexts(fails=True)) as (client, store, _):
        session = await called(store, tmp_path, ADA)
        deleted = await client.delete(f"/api/sessions/{session}")
        assert deleted.status_code == 200
        [pending] = deleted.json()["pending"]
        assert "worker" in pending
        assert deleted.json()["removed"]["recordings"]["calls"] == 1
        assert files_with(tmp_path / "recordings", session) == []


async def test_what_must_be_removed_by_hand_is_named_with_the_totals(tmp_path: Path):
    async with gateway(tmp_path) as (client, store, _):
        session, other = [await called(store, tmp_path, ADA) for _ in range(2)]
        foreign = tmp_path / "recordings" / "sessions" / session / "notes.txt"
        foreign.write_text("not of a recording")
        answer = await client.post(PATH, json={"number": ADA})
        assert answer.status_code == 409
        assert "by hand" in answer.json()["error"]
        assert sorted(answer.json()["sessions"]) == sorted([session, other])
        assert answer.json()["removed"]["recordings"]["calls"] == 1


async def test_a_call_of_the_person_ends_with_their_sessions(tmp_path: Path):
    async with gateway(tmp_path) as (client, store, _):
        session = await called(store, tmp_path, ADA)
        conversations = Conversations(store, compactor=Compactor())
        async with conversations.open(session, for_call=True) as conversation:
            assert (await client.post(PATH, json={"number": ADA})).status_code == 200
            assert conversation.lost.is_set() and isinstance(conversation.loss, UnknownSessionError)
        await conversations.close()


async def test_recordings_on_the_disk_of_another_gateway_are_removed_too(
    tmp_path: Path,
    postgres_url: str,  # noqa: F811
):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    async with (
        gateway(tmp_path / "here", url=postgres_url) as (client, store, _),
        gateway(tmp_path / "there", url=postgres_url) as (_, _, _),
    ):
        session = await called(store, tmp_path / "here", ADA)
        await record_call(tmp_path / "there" / "recordings", session)
        assert (await client.post(PATH, json={"number": ADA})).status_code == 200
        assert files_with(tmp_path / "here" / "recordings", session) == []
        async with asyncio.timeout(60):
            while files_with(tmp_path / "there" / "recordings", session):
                await asyncio.sleep(0.05)
