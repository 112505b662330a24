"""Links by which a session is read without a credential.

For those who may read the session (``session_api`` adds who that is):

    POST   /api/sessions/{id}/shares            makes a link; its secret is in this answer alone
    GET    /api/sessions/{id}/shares            links of the session, with their state
    DELETE /api/sessions/{id}/shares/{share}    revokes one

For readers with a link, which is ``/share/ID#SECRET``:

    GET    /share/{share}                                    page; 404 and 410 as below
    POST   /api/shared/{share}                               opens the link: the secret in its body
    GET    /api/shared/{share}/transcript                    turns of the session
    GET    /api/shared/{share}/recordings                    its recorded calls
    GET    /api/shared/{share}/recordings/{call}             turns and peaks of one
    GET    /api/shared/{share}/recordings/{call}/replay.wav  both sides in stereo

The secret is in the fragment of the address, which a browser sends to no server, so that it is in no log and
no ``Referer``. Opening sets a cookie for the paths of this link alone, because a player sends no headers.
Each request is checked in the store: a revoked link ends at once, in every process.

A link shows words, times and sound of what was over when it was made: no pictures, no tools, no perception,
no comments, and nothing that came later. An unknown link and a wrong secret are 404, an expired and a revoked
one 410. No answer may be stored or indexed (``http.middleware.PageHeaders``).
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.params import Depends as DependsOn
from pydantic import BaseModel, ConfigDict, Field

from parley.recording.library import RecordingSummaries, call_detail
from parley.recording.objects import RecordingBucket
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.http.ranges import Range
from parley.serving.gateway.http.read_pace import ReadPace
from parley.serving.gateway.http.requests import check_origin, client_of, timeline_place
from parley.serving.gateway.limits import Rate
from parley.serving.gateway.page_files import page_files
from parley.serving.gateway.recording_routes import NOT_THERE, RangeHeader, RecordingFiles, found_file
from parley.serving.gateway.settings import COUNTED_CLIENTS, ServerTuning
from parley.session_store.events import Event, Kind
from parley.session_store.rows import SHOWN_CHARS
from parley.session_store.share_links import ShareLink, ShareLinks, TooManyLinksError
from parley.session_store.store import SessionStore

_T = TypeVar("_T")
PAGE_PATH, SHARED_PATH = "/share", "/api/shared"
COOKIE = "parley_share"
DAY_S = 86_400
LEAST_SHARE_S, MOST_SHARE_S = 60, 366 * DAY_S
# Links that one address may make, and may open, in a minute.
MADE_PER_MINUTE, OPENED_PER_MINUTE = 60, 60
UNKNOWN = "this link opens nothing: it is incomplete, was altered, or the session was deleted"
ENDED = {
    "expired": "this link has expired: ask the person who sent it for another one",
    "revoked": "this link was revoked by the person who made it",
}
UNREADABLE = "this recording cannot be read"
TURNS = frozenset({Kind.USER_TURN, Kind.BOT_TURN})
PAGE_EVENTS = 200
MOST_RECORDING_EVENTS = 1_000
# The clock of a session may be ahead of that of the process that made the link.
MOST_SKEW_US = 60_000_000
# Fields of turns, and of events of a recorded call, that a link shows.
_TURN_FIELDS = ("text", "transport", "typed", "reply_id", "truncated", "unheard", "by")
_CALL_EVENTS = frozenset(
    {
        *("VoiceStarted", "VoiceEnded", "TurnStarted", "TurnEndDecided", "TurnEnded", "TurnTranscribed"),
        *("TextTyped", "ReplyStarted", "ReplyFinished"),
    }
)
_CALL_FIELDS = (*("at_ms", "event", "text", "unheard", "reply_id", "truncated", "voiced_ms", "silence_ms"),)


class ShareSecret(BaseModel):
    """Body that opens a link."""

    model_config = ConfigDict(extra="forbid")

    secret: str = Field(min_length=1, max_length=100)


@dataclass(frozen=True, slots=True)
class ShareReading:
    """Reading of sessions, as the routes of sessions have it.

    Attributes:
        store: of the sessions.
        settings: of the server.
        pace: of long answers.
        audit: records links that are made and revoked.
        recordings: folder of the recordings; None: there are none.
        bucket: to which they move; None: they stay.
    """

    store: SessionStore
    settings: ServerTuning
    pace: ReadPace
    audit: AuditLog
    recordings: Path | None
    bucket: RecordingBucket | None = None

    def client(self, request: Request) -> str:
        """Return the address of a client, for counting."""
        return client_of(request, trusted_proxies=self.settings.trusted_proxies)


def add_share_routes(router: APIRouter, reading: ShareReading, *, in_use: Sequence[DependsOn]) -> None:
    """Add the routes of those who make links to the routes of a session.

    Args:
        router: of the sessions.
        reading: of sessions.
        in_use: check that a client may read the session.
    """
    links = ShareLinks(reading.store)
    most_days = reading.settings.max_share_days
    most_s = int(most_days * DAY_S)

    class NewShare(BaseModel):
        """Body of a new link."""

        model_config = ConfigDict(extra="forbid")

        # Here and not in the module: the range depends on the deployment.
        expires_s: Annotated[int, Range(LEAST_SHARE_S, most_s or MOST_SHARE_S)] = Field(
            min(7 * DAY_S, most_s), description="time for which the link opens"
        )

    rate = Rate(MADE_PER_MINUTE, "{limit} links in a minute: go on later", clients=COUNTED_CLIENTS)

    @router.post("/{session_id}/shares", status_code=201, dependencies=in_use)
    async def make(session_id: str, request: Request, body: NewShare | None = None) -> dict[str, object]:
        """Make a link by which the session is read without a credential; only this answer has its secret."""
        for_s = (body or NewShare()).expires_s
        if not most_days:
            raise HTTPException(409, "this server makes no links (server.max_share_days)")
        address = reading.client(request)
        rate.take(address)
        try:
            link, secret = await links.make(session_id, for_s=for_s)
        except TooManyLinksError as error:
            raise HTTPException(409, str(error)) from error
        reading.audit.record(
            "session.shared", address=address, session=session_id[:SHOWN_CHARS], share=link.id, for_s=for_s
        )
        path = f"{PAGE_PATH}/{link.id}#{secret}"
        return {**_shown(link, reading.store.wall_us()), "secret": secret, "path": path}

    @router.get("/{session_id}/shares", dependencies=in_use)
    async def listed(session_id: str) -> dict[str, object]:
        """Return the links of a session, newest first, with their state and without their secrets."""
        now_us = reading.store.wall_us()
        found = await links.of_session(session_id)
        return {"shares": [_shown(link, now_us) for link in found], "max_days": most_days}

    @router.delete("/{session_id}/shares/{share_id}", status_code=204, dependencies=in_use)
    async def revoke(session_id: str, share_id: str, request: Request) -> Response:
        """Revoke a link of a session: it opens nothing from now on."""
        if not await links.revoke(session_id, share_id):
            raise HTTPException(404, "the session has no such link")
        reading.audit.record(
            "session.share_revoked",
            address=reading.client(request),
            session=session_id[:SHOWN_CHARS],
            share=share_id,
        )
        return Response(status_code=204)


class SharedSession:
    """Routes for readers with a link.

    Args:
        reading: of sessions.
    """

    def __init__(self, reading: ShareReading) -> None:
        self._reading = reading
        self._store = reading.store
        self._links = ShareLinks(reading.store)
        self._files = page_files()
        self._rate = Rate(
            OPENED_PER_MINUTE, "{limit} links in a minute: go on later", clients=COUNTED_CLIENTS
        )

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter()
        router.get(f"{PAGE_PATH}/{{share_id}}")(self.page)
        router.post(f"{SHARED_PATH}/{{share_id}}")(self.open)
        router.get(f"{SHARED_PATH}/{{share_id}}/transcript")(self.transcript)
        if self._reading.recordings is not None:
            recordings = SharedRecordings(self._reading, self._reading.recordings, self.opened)
            recordings.add_to(router)
        else:
            router.get(f"{SHARED_PATH}/{{share_id}}/recordings")(self.no_recordings)
        return router

    async def page(self, share_id: str, request: Request) -> Response:
        """Return the page of a link, which holds no data; 404 for an unknown and 410 for an ended one."""
        self._rate.take(self._reading.client(request))
        link = await self._links.find(share_id)
        state = None if link is None else link.state(self._store.wall_us())
        status = 404 if state is None else 200 if state == "open" else 410
        return self._files.page("share.html", request, status=status)

    async def open(
        self, share_id: str, request: Request, response: Response, body: ShareSecret
    ) -> dict[str, object]:
        """Open a link: sets a cookie with which its session is read."""
        check_origin(request, allowed=self._reading.settings.allowed_origins)
        self._rate.take(self._reading.client(request))
        link = await self._checked(share_id, body.secret)
        response.set_cookie(
            COOKIE,
            body.secret,
            max_age=max(1, (link.until_us - self._store.wall_us()) // 1_000_000),
            path=f"{SHARED_PATH}/{link.id}",
            httponly=True,
            samesite="strict",
            # Behind a proxy that terminates TLS, only the page's own origin reveals it.
            secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:"),
        )
        return {"created_us": link.created_us, "until_us": link.until_us}

    async def opened(self, share_id: str, request: Request) -> ShareLink:
        """Return the link that the cookie of a request opens.

        Raises:
            HTTPException: 404, it opens none; 410, the link has ended.
        """
        return await self._checked(share_id, request.cookies.get(COOKIE, ""))

    async def _checked(self, share_id: str, secret: str) -> ShareLink:
        link = await self._links.check(share_id, secret)
        if link is None:
            raise HTTPException(404, UNKNOWN)
        state = link.state(self._store.wall_us())
        if state != "open":
            raise HTTPException(410, ENDED[state])
        return link

    async def transcript(
        self,
        share_id: str,
        request: Request,
        after: Annotated[str | None, Query()] = None,
    ) -> dict[str, object]:
        """Return a page of the turns of a shared session, by event time."""
        link = await self.opened(share_id, request)
        client, pace = self._reading.client(request), self._reading.pace
        with pace.take(client):
            found = await self._store.timeline(
                link.session_id, after=timeline_place(after), limit=PAGE_EVENTS, kinds=TURNS
            )
            turns = [_turn(event) for event in found if event.seq <= link.until_seq]
            await pace.read(client, len(json.dumps(turns)))
        last = found[-1] if len(found) == PAGE_EVENTS else None
        return {"events": turns, "after": None if last is None else f"{last.event_us}.{last.seq}"}

    async def no_recordings(self, share_id: str, request: Request) -> dict[str, object]:
        """Return that a shared session has no recorded calls on this server."""
        await self.opened(share_id, request)
        return {"calls": []}


class SharedRecordings:
    """Routes for the recorded calls of a link: those that were over when it was made.

    Args:
        reading: of sessions.
        folder: of the recordings.
        opened: returns the link that a request opens, or raises HTTPException.
    """

    def __init__(self, reading: ShareReading, folder: Path, opened: Callable[..., Any]) -> None:
        self._reading = reading
        self._folder = folder
        self._opened = opened
        self._summaries = RecordingSummaries(folder, reading.bucket)
        self._files = RecordingFiles(
            folder, reading.bucket, reading.pace, reading.client, stall_s=reading.settings.reader_stall_s
        )

    def add_to(self, router: APIRouter) -> None:
        """Add the routes."""
        opened = Annotated[ShareLink, Depends(self._opened)]
        below = f"{SHARED_PATH}/{{share_id}}/recordings"

        @router.get(below)
        async def calls(link: opened, request: Request) -> dict[str, object]:
            """Return the recorded calls of a shared session, oldest first."""
            return {"calls": await self._calls(link, self._reading.client(request))}

        @router.get(f"{below}/{{call_id}}")
        async def call(link: opened, call_id: str, request: Request) -> Response:
            """Return the turns of a recorded call of a shared session, and the peaks of both sides."""
            await self._check(link, call_id)
            return await _without_reason(self._files.made(request, lambda: self._detail(link, call_id)))

        @router.get(f"{below}/{{call_id}}/replay.wav")
        async def replay(
            link: opened, call_id: str, request: Request, range_: RangeHeader = None
        ) -> Response:
            """Return a recorded call of a shared session in stereo, the caller left; also a range of it."""
            await self._check(link, call_id)
            return await _without_reason(self._files.replay(request, link.session_id, call_id, range_))

    async def _calls(self, link: ShareLink, client: str) -> list[dict[str, object]]:
        shown = await self._ended(link)
        with self._reading.pace.take(client):
            read = self._files.in_thread(self._summaries.of_session, link.session_id)
            found, read_bytes = await found_file(read)
            await self._reading.pace.read(client, read_bytes)
        # A reason names the session, or the deployment's keys.
        return [
            asdict(
                replace(
                    each,
                    has_film=False,
                    pictures=0,
                    client_replay="",
                    problem=UNREADABLE if each.problem else "",
                )
            )
            for each in found
            if each.call_id in shown
        ]

    async def _ended(self, link: ShareLink) -> set[str]:
        """Return the calls whose recordings had ended when the link was made."""
        # From the time of the link back: the session may have gone on for years since.
        events = await self._reading.store.timeline(
            link.session_id,
            after=(link.created_us + MOST_SKEW_US, 0),
            limit=MOST_RECORDING_EVENTS,
            kinds=(Kind.RECORDING,),
            newest_first=True,
        )
        return {
            str(event.payload.get("call_id"))
            for event in events
            if event.seq <= link.until_seq and event.payload.get("state") == "ended"
        }

    async def _check(self, link: ShareLink, call_id: str) -> None:
        if call_id not in await self._ended(link):
            raise HTTPException(404, NOT_THERE)

    def _detail(self, link: ShareLink, call_id: str) -> str:
        """Return the detail of a call with the events and fields that a link shows. Blocks."""
        detail = call_detail(self._folder, link.session_id, call_id, self._reading.bucket)
        events = [
            {name: event[name] for name in _CALL_FIELDS if name in event}
            for event in detail["events"]
            if event["event"] in _CALL_EVENTS
        ]
        return json.dumps({**detail, "events": events, "pictures": [], "images": []})


async def _without_reason(answer: Awaitable[_T]) -> _T:
    """Return an answer; a failure loses its reason, which names the session or the deployment's keys."""
    try:
        return await answer
    except HTTPException as error:
        if error.status_code in (409, 500):
            raise HTTPException(error.status_code, UNREADABLE) from error
        raise


def _shown(link: ShareLink, now_us: int) -> dict[str, object]:
    return {
        "id": link.id,
        "created_us": link.created_us,
        "until_us": link.until_us,
        "revoked_us": link.revoked_us,
        "state": link.state(now_us),
    }


def _turn(event: Event) -> dict[str, object]:
    payload = {name: event.payload[name] for name in _TURN_FIELDS if name in event.payload}
    return {
        "seq": event.seq,
        "event_us": event.event_us,
        "kind": event.kind,
        "key": event.key,
        "payload": payload,
    }
