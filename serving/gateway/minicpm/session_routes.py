"""Routes of a session as the MiniCPM-o server's pages save and share it, for those who may read the session.

    GET  /{id}/meta                    its facts, as that server's ``meta.json``
    GET  /{id}/recording               its timeline, as that server's ``recording.json`` (``minicpm_view``)
    GET  /{id}/assets/{name}           a media file of its newest recorded call that has it; also ``HEAD``
    GET  /{id}/assets/{part}/{name}    likewise, in a folder of the call
    GET  /{id}/download                all files of the session as a ZIP
    POST /{id}/upload-recording        recording that its client made itself (``replay_upload``)
    GET  /{id}/comment                 comment on the whole session
    POST /{id}/comment                 writes it; an empty one removes it

On that server a stranger who guesses an id reads everything. Here the routes have the rights of the sessions
API. Its comment is one of the comments of the session: at the time of its creation, one of each author.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.params import Depends as DependsOn
from pydantic import BaseModel, Field

from parley.core.grants import ClientIdentity
from parley.recording.folder import CallRecording
from parley.recording.library import asset_file, recordings_of
from parley.recording.minicpm_view import (
    ShownTurn,
    call_meta,
    call_recording,
    session_meta,
    session_recording,
)
from parley.serving.gateway.auth.client_auth import OPERATOR
from parley.serving.gateway.comment_routes import COMMENTS_PER_MINUTE, MOST_COMMENT_CHARS, record_deletion
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.read_pace import VIEW_COST_BYTES
from parley.serving.gateway.http.requests import discard_rest
from parley.serving.gateway.limits import Rate
from parley.serving.gateway.minicpm.replay_upload import ClientReplayUpload
from parley.serving.gateway.recording_routes import (
    RangeHeader,
    RecordingFiles,
    SessionRecordings,
    found_file,
)
from parley.serving.gateway.settings import COUNTED_CLIENTS
from parley.serving.gateway.share_routes import ShareReading
from parley.session_store.comments import SessionComment, SessionComments, TooManyCommentsError
from parley.session_store.events import Event, Kind
from parley.session_store.rows import SessionInfo

MOST_TURNS = 1_000
TURNS = frozenset({Kind.USER_TURN, Kind.BOT_TURN})
Operates = Callable[[str, Request], Awaitable[ClientIdentity]]


class CommentOnWhole(BaseModel):
    """Body of a comment on the whole of a session, as that server's pages send it."""

    comment: str | None = Field(None, max_length=10 * MOST_COMMENT_CHARS)


class MiniCpmSessions:
    """Routes of the sessions of one process.

    Args:
        reading: of sessions.
        files: reader of the recordings' files; None: there are none.
        operates: checks that a client may read a session, or write for it by another method than GET;
            returns its identity.
        in_use: the same check as a dependency.
    """

    def __init__(
        self,
        reading: ShareReading,
        files: RecordingFiles | None,
        *,
        operates: Operates,
        in_use: Sequence[DependsOn],
    ) -> None:
        self._reading, self._store, self._files = reading, reading.store, files
        self._operates, self._in_use = operates, in_use
        self._comments = SessionComments(reading.store)
        self._rate = Rate(
            COMMENTS_PER_MINUTE, "{limit} comments in a minute: go on later", clients=COUNTED_CLIENTS
        )

    def add_to(self, router: APIRouter, recordings: SessionRecordings | None) -> None:
        """Add the routes to those of a session.

        Args:
            router: of the sessions.
            recordings: of the calls; None: there are none.
        """
        add = router.add_api_route
        add("/{session_id}/meta", self.meta, methods=["GET"], dependencies=self._in_use)
        add("/{session_id}/recording", self.recording, methods=["GET"], dependencies=self._in_use)
        add("/{session_id}/comment", self.comment, methods=["GET"], dependencies=self._in_use)
        self._add_writing(router)
        if self._files is not None and recordings is not None:
            RecordedFiles(self._reading, self._files, recordings, self._operates).add_to(router, self._in_use)

    async def meta(self, request: Request, session_id: str) -> Response:
        """Return the facts of a session, as the MiniCPM-o server's meta.json."""
        info = await self._store.info(session_id)

        async def without_call() -> dict[str, object]:
            return session_meta(session_id, info.created_us)

        return await self._shown(request, session_id, call_meta, without_call)

    async def recording(self, request: Request, session_id: str) -> Response:
        """Return the timeline of a session, as the MiniCPM-o server's recording.json."""
        info = await self._store.info(session_id)

        async def without_call() -> dict[str, object]:
            turns = await self._store.timeline(session_id, limit=MOST_TURNS, kinds=TURNS)
            return session_recording(session_id, info.created_us, shown_turns(info, turns))

        return await self._shown(request, session_id, call_recording, without_call)

    async def _shown(
        self,
        request: Request,
        session_id: str,
        of_call: Callable[[CallRecording], dict[str, object]],
        without_call: Callable[[], Awaitable[dict[str, object]]],
    ) -> Response:
        """Return the newest recorded call as a function shows it, or what the session has without one."""
        client, pace = self._reading.client(request), self._reading.pace
        with pace.take(client):
            found = await self._newest(session_id, of_call) or json.dumps(await without_call())
            body = found.encode()
            await pace.read(client, max(len(body), VIEW_COST_BYTES))
        return Response(body, media_type="application/json")

    async def comment(self, session_id: str) -> dict[str, object]:
        """Return the newest comment on the whole of a session; an empty one for none."""
        info = await self._store.info(session_id)
        found = self._on_whole(info, await self._comments.of_session(session_id))
        return {"comment": found[-1].text if found else ""}

    def _add_writing(self, router: APIRouter) -> None:
        writer = Annotated[ClientIdentity, Depends(self._operates)]

        @router.post("/{session_id}/comment")
        async def write_comment(session_id: str, body: CommentOnWhole, client: writer) -> dict[str, object]:
            """Write the client's comment on the whole of a session, over an earlier one; empty removes it."""
            return await self._write(session_id, (body.comment or "").strip(), client)

    async def _write(self, session_id: str, text: str, client: ClientIdentity) -> dict[str, object]:
        self._rate.take(client.address)
        if len(text) > MOST_COMMENT_CHARS:
            raise HTTPException(413, f"comment: over {MOST_COMMENT_CHARS} characters")
        if "\0" in text:
            raise HTTPException(422, "comment: a NUL character is no text")
        info = await self._store.info(session_id)
        author = OPERATOR if client.is_operator else client.session_owner or ""
        on_whole = self._on_whole(info, await self._comments.of_session(session_id))
        earlier = [each.id for each in on_whole if each.author == author]
        if text:
            try:
                await self._comments.add(
                    session_id, at_us=info.created_us, author=author, name="", text=text, replaces=earlier
                )
            except TooManyCommentsError as error:
                raise HTTPException(409, str(error)) from error
        for comment_id in earlier:
            if not text:
                await self._comments.delete(session_id, comment_id)
            record_deletion(self._reading.audit, client, session_id, comment_id)
        return {"status": "ok", "len": len(text)}

    @staticmethod
    def _on_whole(info: SessionInfo, comments: Sequence[SessionComment]) -> list[SessionComment]:
        return [each for each in comments if each.at_us == info.created_us]

    async def _newest(self, session_id: str, shown: Callable[[CallRecording], dict[str, object]]) -> str:
        """Return JSON of what a function shows of the newest recorded call; empty without any."""
        folder, bucket = self._reading.recordings, self._reading.bucket
        if folder is None or self._files is None:
            return ""

        def read() -> str:
            found = recordings_of(folder, session_id, bucket)
            return json.dumps(shown(found[-1])) if found else ""

        return await found_file(self._files.in_thread(read))


class RecordedFiles:
    """Routes of the files of recorded calls.

    Args:
        reading: of sessions.
        files: reader of the files.
        recordings: of the calls.
        operates: as for ``MiniCpmSessions``.
    """

    def __init__(
        self,
        reading: ShareReading,
        files: RecordingFiles,
        recordings: SessionRecordings,
        operates: Operates,
    ) -> None:
        self._reading, self._files, self._recordings = reading, files, recordings
        self._operates = operates
        self._uploads = ClientReplayUpload(reading.settings, recordings.settings, recordings.bucket)

    def add_to(self, router: APIRouter, in_use: Sequence[DependsOn]) -> None:
        """Add the routes."""
        for method in ("GET", "HEAD"):
            for path, endpoint in (("{name}", self.asset), ("{part}/{name}", self.part)):
                router.add_api_route(
                    f"/{{session_id}}/assets/{path}",
                    endpoint,
                    methods=[method],
                    dependencies=in_use,
                    response_model=None,
                )
        router.add_api_route(
            "/{session_id}/download",
            self.download,
            methods=["GET"],
            dependencies=in_use,
            response_model=None,
        )
        # Identifies its client itself, and reads on when it refuses.
        router.add_api_route("/{session_id}/upload-recording", self.upload, methods=["POST"])

    async def asset(
        self, request: Request, session_id: str, name: str, range_: RangeHeader = None
    ) -> Response:
        """Return a media file of the newest recorded call that has it; also a range of it."""
        return await self._sent(request, session_id, (name,), range_)

    async def part(
        self, request: Request, session_id: str, part: str, name: str, range_: RangeHeader = None
    ) -> Response:
        """Return a media file in a folder of the newest recorded call that has it; also a range of it."""
        return await self._sent(request, session_id, (part, name), range_)

    async def _sent(
        self, request: Request, session_id: str, parts: Sequence[str], bounds: str | None
    ) -> Response:
        folder, bucket = self._recordings.folder, self._recordings.bucket
        found = self._files.in_thread(asset_file, folder, session_id, parts, bucket)
        stored, media_type = await found_file(found)
        return await self._files.ranged(request, stored, media_type, bounds)

    async def download(self, request: Request, session_id: str) -> EventStream:
        """Stream all recordings of a session as a ZIP."""
        return await self._files.archive(request, session_id)

    async def upload(self, request: Request, session_id: str) -> dict[str, object]:
        """Store a recording that the client made of its own call, in the multipart field ``file``."""
        try:
            identity = await self._operates(session_id, request)
            store = self._reading.store
            joined = await store.newest_event(session_id, Kind.JOINED)
            call_id = "" if joined is None else str(joined.payload.get("call_id", ""))
            return await self._uploads.take(request, session_id, call_id, identity, store.info)
        except Exception:
            settings = self._reading.settings
            # Where no upload is accepted, still as much as of another recording.
            most_bytes = max(self._uploads.most_body_bytes, settings.max_recording_bytes)
            await discard_rest(request, max_bytes=most_bytes, within_s=settings.body_s)
            raise


def shown_turns(info: SessionInfo, events: Sequence[Event]) -> list[ShownTurn]:
    """Return the turns of a session, each with the words of the bot until the next one."""
    turns: list[ShownTurn] = []
    for event in events:
        text = str(event.payload.get("text", "")).strip()
        at_ms = max(0, event.event_us - info.created_us) // 1_000
        if event.kind is Kind.USER_TURN or not turns:
            is_caller = event.kind is Kind.USER_TURN
            turns.append(ShownTurn(at_ms, text if is_caller else "", "" if is_caller else text))
        else:
            last = turns[-1]
            turns[-1] = ShownTurn(last.at_ms, last.text, f"{last.answer} {text}".strip())
    return turns
