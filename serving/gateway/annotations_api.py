"""Annotations of outside specialists: reports of other programs about a live call.

    POST /api/sessions/{id}/annotations           one batch of reports
    WS   /api/sessions/{id}/annotations/socket    a batch in each message, an answer to each

A program that may type into a session may report about its call (``access``). Both ways take the same batch
(``protocols.annotations``) and answer how much of it was accepted, the time of the session, and whether the
model of the call reads annotations. A batch is accepted whole or not at all.

Refused: a session without a live call in this process (409), a batch that is invalid (422) or whose times
are impossible (400), and more than ``REPORTS_PER_S`` about one session (429). Over a socket a refusal is a
message with ``error``; a socket that goes on too fast after ``MOST_REFUSED`` refusals is closed, and the call
goes on. A socket ends with its call. Its streams end with it, so that no turn waits for a specialist that is
gone.

A socket is read by its own task, one message at a time, and reads no further before its answer is sent. The
call takes reports at once, and holds a bounded number (``sequencer``).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from fastapi import APIRouter, Depends, HTTPException, Request, WebSocket
from loguru import logger
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import AgentError, PeerError
from parley.core.grants import ClientIdentity, KeyScope
from parley.core.timeline import OutsideReport, Source
from parley.core.token_bucket import TokenBucket
from parley.protocols.annotations import AnnotationBatch, parse_batch, placed
from parley.runtime.loop_clock import LoopClock
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.http.middleware import POLICY_VIOLATION
from parley.serving.gateway.http.requests import check_origin
from parley.serving.gateway.limits import ConcurrencyLimit, ShareError
from parley.serving.gateway.session_api import PATH, SessionId, known_id
from parley.serving.gateway.settings import COUNTED_CLIENTS, ServerTuning
from parley.serving.gateway.sockets.eval_socket import close_socket
from parley.serving.gateway.sockets.realtime_sockets import SUBPROTOCOLS, deny, subprotocols_of
from parley.session_store.conversations import Conversations

# Of one session, over all its programs. Vision reports some 5 times a second, the voice 10 times, and each
# may send as many heartbeats. A report is stored: at this rate a call of an hour takes some 100 MB.
REPORTS_PER_S = 50
# Reports that may come at once, as after a stall of the network.
BURST = 100
# Sockets of one session, and of all.
SESSION_SOCKETS, MOST_SOCKETS = 4, 256
# Refused messages after which a socket is closed, refilled at one a second: a program that reads its answers
# slows down long before.
MOST_REFUSED = 100
NO_CALL = (
    "no call is live in this session on this server: begin a call that names the session, and report while "
    "it runs"
)
TOO_FAST = (
    f"over {REPORTS_PER_S} reports a second about this session (one with an embedding counts as 10): "
    "report less often"
)
OVER = "the call has ended"
NORMAL, GOING_AWAY = 1000, 1001


class AnnotationEntry(Protocol):
    """Entry of reports into one live call (``pipelines.live_annotations``).

    Attributes:
        began_us: when the call began, on the session clock.
        are_read: the model that answers reads annotations; otherwise they are only stored.
        ended: set when the call is over.
    """

    began_us: int
    are_read: bool
    ended: asyncio.Event

    def now_us(self) -> int:
        """Return the time of the session clock."""
        ...

    def take(self, reports: Sequence[OutsideReport]) -> None:
        """Pass reports on to the call; raise PeerError when it is over."""
        ...

    def hold(self, stream: Source) -> None:
        """Count one more socket that reports in a stream."""
        ...

    def release(self, stream: Source) -> None:
        """Count one socket less; the stream ends with the last one."""
        ...


class AnnotationEntries(Protocol):
    """Entries of the live calls of this process."""

    def find(self, session_id: str) -> AnnotationEntry | None:
        """Return the entry of the live call of a session; None without one."""
        ...


class AnnotationIntake:
    """Reports about all sessions of this process, bounded in their rate.

    Args:
        entries: live calls.
        max_chars: longest message of a socket; bodies are bounded by the server.
    """

    def __init__(self, entries: AnnotationEntries, *, max_chars: int) -> None:
        self._entries = entries
        self._max_chars = max_chars
        self._clock = LoopClock()
        self._rates: BoundedDict[str, TokenBucket] = BoundedDict(COUNTED_CLIENTS)

    def find(self, session_id: str) -> AnnotationEntry | None:
        """Return the entry of the live call of a session; None without one."""
        return self._entries.find(session_id)

    def take(self, session_id: str, entry: AnnotationEntry, batch: AnnotationBatch) -> list[OutsideReport]:
        """Pass a batch on to the call; return its reports.

        Raises:
            ShareError: too much is reported about this session.
            PeerError: the times of a report are impossible, or the call is over.
        """
        self._count(session_id, max(1, batch.cost))
        reports = placed(batch, now_us=entry.now_us(), began_us=entry.began_us)
        entry.take(reports)
        return reports

    def take_message(self, session_id: str, entry: AnnotationEntry, text: str | None) -> list[OutsideReport]:
        """Pass the batch of one message of a socket on to the call; return its reports.

        Raises:
            ShareError: too much is reported about this session; the message was not read.
            PeerError: as ``take`` does, and for a message that is no batch.
        """
        # An invalid message counts as one report: reading it took as long.
        self._count(session_id, 1)
        if text is None:
            raise PeerError("send text: a JSON object with annotations")
        if len(text) > self._max_chars:
            raise PeerError(f"a message over {self._max_chars} characters: send smaller batches")
        batch = parse_batch(text)
        reports = placed(batch, now_us=entry.now_us(), began_us=entry.began_us)
        self._rates[session_id].overdraw(max(0, batch.cost - 1), self._clock.now_us())
        entry.take(reports)
        return reports

    def _count(self, session_id: str, cost: int) -> None:
        """Count reports; a batch may overdraw, and the next one waits."""
        bucket, now_us = self._rates.get(session_id), self._clock.now_us()
        if bucket is None:
            bucket = self._rates[session_id] = TokenBucket(REPORTS_PER_S, BURST)
        owed_us = bucket.owed_us(now_us)
        if owed_us:
            raise ShareError(TOO_FAST, limit=REPORTS_PER_S, retry_s=owed_us / 1_000_000)
        bucket.overdraw(cost, now_us)


class AnnotationSocket:
    """Socket of one outside specialist, from its acceptance to its end.

    Args:
        websocket: accepted.
        session_id: of the call.
        entry: of the call.
        intake: of this process.
        check_current: raises HTTPException when the grants of the client have ended.
        within_s: longest time in which the client takes an answer.
    """

    def __init__(
        self,
        websocket: WebSocket,
        session_id: str,
        entry: AnnotationEntry,
        intake: AnnotationIntake,
        *,
        check_current: Callable[[], None],
        within_s: float,
    ) -> None:
        self._websocket = websocket
        self._session_id = session_id
        self._entry = entry
        self._intake = intake
        self._check_current = check_current
        self._within_s = within_s
        self._streams: set[Source] = set()
        self._refusals = TokenBucket(1, MOST_REFUSED)
        self._clock = LoopClock()

    async def run(self) -> None:
        """Serve until the client leaves, the call is over or the client is too fast for too long."""
        code, reason = GOING_AWAY, ""
        try:
            await self._send({})
            code, reason = await self._serve()
        except (WebSocketDisconnect, RuntimeError, TimeoutError) as error:
            # The client has left, or takes no answers.
            logger.debug(f"the socket of a specialist has ended: {error!r}")
        finally:
            for stream in self._streams:
                self._entry.release(stream)
            await close_socket(self._websocket, code, reason, within_s=self._within_s)

    async def _serve(self) -> tuple[int, str]:
        """Answer messages; return code and reason of the end."""
        ending = asyncio.ensure_future(self._entry.ended.wait())
        try:
            while True:
                receiving = asyncio.ensure_future(self._websocket.receive())
                try:
                    await asyncio.wait({receiving, ending}, return_when=asyncio.FIRST_COMPLETED)
                    if ending.done():
                        return NORMAL, OVER
                    message = receiving.result()
                finally:
                    receiving.cancel()
                if message["type"] != "websocket.receive":
                    return NORMAL, ""
                if refusal := await self._answer(message.get("text")):
                    return POLICY_VIOLATION, refusal
        finally:
            ending.cancel()

    async def _answer(self, text: str | None) -> str:
        """Answer one message; return the reason to close the socket, or an empty text."""
        try:
            self._check_current()
            reports = self._intake.take_message(self._session_id, self._entry, text)
        except HTTPException as error:
            return str(error.detail)
        except ShareError as error:
            if not self._refusals.take(1, self._clock.now_us()):
                return TOO_FAST
            await self._send({"error": str(error), "retry_s": error.retry_s})
        except PeerError as error:
            await self._send({"error": str(error)})
        else:
            for stream in {one.stream for one in reports} - self._streams:
                self._entry.hold(stream)
                self._streams.add(stream)
            await self._send({"accepted": len(reports)})
        return ""

    async def _send(self, facts: dict[str, object]) -> None:
        async with asyncio.timeout(self._within_s):
            await self._websocket.send_json({**facts, **clock_facts(self._entry)})


def annotations_api(
    entries: AnnotationEntries, conversations: Conversations, settings: ServerTuning, access: Access
) -> APIRouter:
    """Return the routes.

    Args:
        entries: live calls of this process.
        conversations: sessions of this process.
        settings: of the server.
        access: checks that a client may use a session.
    """
    store = conversations.store
    intake = AnnotationIntake(entries, max_chars=settings.max_body_bytes)
    sockets = ConcurrencyLimit(
        MOST_SOCKETS,
        f"{MOST_SOCKETS} specialists are connected to this server, try again later",
        each=SESSION_SOCKETS,
        each_full=f"{SESSION_SOCKETS} specialists are connected to this session: let one report for others",
    )
    router = APIRouter(prefix=PATH)

    async def identified(connection: HTTPConnection, session_id: str) -> ClientIdentity:
        check_origin(connection, allowed=settings.allowed_origins)
        identity = await access.identify(connection, KeyScope.TALK)
        if not access.is_open:
            access.check_use(identity, session_id, (await store.info(session_id)).owner)
        return identity

    async def entry_of(session_id: str) -> AnnotationEntry:
        entry = intake.find(session_id)
        if entry is None:
            # An unknown session is another mistake.
            await store.info(session_id)
            raise HTTPException(409, NO_CALL)
        return entry

    async def used(session_id: SessionId, request: Request) -> None:
        await identified(request, session_id)

    @router.post("/{session_id}/annotations", dependencies=[Depends(used)])
    async def report(session_id: SessionId, body: AnnotationBatch) -> dict[str, object]:
        """Report what a specialist outside of Parley perceived in the live call of a session."""
        entry = await entry_of(session_id)
        reports = intake.take(session_id, entry, body)
        return {"accepted": len(reports), **clock_facts(entry)}

    async def serve(websocket: WebSocket, session_id: str) -> None:
        """Serve a specialist outside of Parley: a batch of reports in each message, an answer to each."""
        try:
            identity = await identified(websocket, known_id(session_id))
            entry = await entry_of(session_id)
            place = sockets.take(session_id)
        except (HTTPException, AgentError) as error:
            await deny(websocket, error)
            return
        with place:
            # A browser that offers subprotocols rejects a socket that selects none.
            offered = [name for name in subprotocols_of(websocket) if name in SUBPROTOCOLS]
            await websocket.accept(offered[0] if offered else None)
            await AnnotationSocket(
                websocket,
                session_id,
                entry,
                intake,
                check_current=partial(access.check_current, identity),
                within_s=settings.hang_up_s,
            ).run()

    router.add_api_websocket_route("/{session_id}/annotations/socket", serve)
    return router


def clock_facts(entry: AnnotationEntry) -> dict[str, object]:
    """Return the part of every answer that does not depend on the batch."""
    return {"now_us": entry.now_us(), "read_by_model": entry.are_read}
