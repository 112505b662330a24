"""Routes of the desk; all are for the operator.

GET  /api/desk?desk=ID                      {enabled, sessions}: waiting, human and other live sessions
POST /api/desk/sessions/{id}/take           {desk}: the agent is silent from here on
POST /api/desk/sessions/{id}/say            {desk, text}: the words of the human, spoken or shown
POST /api/desk/sessions/{id}/whisper        {text}: an instruction for the model's next reply
POST /api/desk/sessions/{id}/return         {desk, note}: the agent goes on; its model receives the note

``GET`` is also the desk's sign of life. A request that does not fit the state of the session gets 409, and a
server without a desk 404. The transcript comes from the sessions API, which the operator may use.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field

from parley.core.tiers import Tier
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.desk.desk import Desk, DeskError
from parley.serving.gateway.session_api import SessionId
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.memory import text_in

PATH = "/api/desk"
# A page lists no more; those that wait come first.
MOST_LISTED = 200
SHOWN_WORDS_CHARS = 160
DESK_ID = r"^[A-Za-z0-9-]{8,64}$"
_ORDER = (
    Tier.WAITING,
    Tier.HUMAN,
    Tier.OFFERED,
    Tier.STEP_OFFERED,
    Tier.STEPPING,
    Tier.BACK,
    Tier.AGENT,
)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DeskTake(_Body):
    """Body of a takeover."""

    desk: str = Field(pattern=DESK_ID)


class DeskText(_Body):
    """Body of words to the caller."""

    desk: str = Field(pattern=DESK_ID)
    text: str = Field(min_length=1, max_length=4_000)


class DeskWhisper(_Body):
    """Body of an instruction for the model."""

    text: str = Field(min_length=1, max_length=2_000)


class DeskReturn(_Body):
    """Body of the end of a takeover."""

    desk: str = Field(pattern=DESK_ID)
    note: str = Field("", max_length=2_000)


class DeskSession(BaseModel):
    """Session as the desk lists it.

    Attributes:
        id: of the session.
        tier: its tier.
        epoch: number of changes of the tier so far.
        reason: event that led to the tier.
        cause: why a human was offered; empty where none was.
        since_s: time in the tier; None for one that never changed.
        place: place among those that wait, from 1; 0 for others.
        in_call: a call holds it.
        can_speak: a human can speak in that call.
        mine: this desk has it.
        last: last words of the caller.
    """

    id: str
    tier: str
    epoch: int
    reason: str
    cause: str
    since_s: float | None
    place: int
    in_call: bool
    can_speak: bool
    mine: bool
    last: str


class DeskView(BaseModel):
    """Sessions of this process, those that wait first."""

    enabled: bool
    sessions: list[DeskSession]


def desk_api(desk: Desk | None, conversations: Conversations, operators: AdminAuth) -> APIRouter:
    """Return the routes.

    Args:
        desk: of this process; None where the deployment has none.
        conversations: of this process.
        operators: checks that a request is an operator's, and the origin of its page.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])

    def present() -> Desk:
        if desk is None:
            raise HTTPException(404, "this server has no desk: add a 'desk:' block to its settings")
        return desk

    @router.get(PATH)
    async def listed(desk_id: Annotated[str, Query(alias="desk", pattern=DESK_ID)]) -> DeskView:
        """Return the sessions, and note that this desk is there."""
        if desk is None:
            return DeskView(enabled=False, sessions=[])
        desk.sign_of_life(desk_id)
        found = sorted(conversations.live(), key=_rank)[:MOST_LISTED]
        sessions = [
            _shown(each, desk_id, desk, in_call=conversations.is_in_call(each.session_id)) for each in found
        ]
        return DeskView(enabled=True, sessions=sessions)

    @router.post(f"{PATH}/sessions/{{session_id}}/take", status_code=204)
    async def take(session_id: SessionId, body: DeskTake) -> None:
        """Take a session over."""
        with _answers():
            await present().take(session_id, body.desk)

    @router.post(f"{PATH}/sessions/{{session_id}}/say", status_code=204)
    async def say(session_id: SessionId, body: DeskText) -> None:
        """Say something to the caller."""
        with _answers():
            await present().say(session_id, body.desk, _text(body.text))

    @router.post(f"{PATH}/sessions/{{session_id}}/whisper", status_code=204)
    async def whisper(session_id: SessionId, body: DeskWhisper) -> None:
        """Instruct the model for its next reply."""
        with _answers():
            await present().whisper(session_id, _text(body.text))

    @router.post(f"{PATH}/sessions/{{session_id}}/return", status_code=204)
    async def hand_back(session_id: SessionId, body: DeskReturn) -> None:
        """Hand a session back to the agent."""
        with _answers():
            await present().hand_back(session_id, body.desk, body.note.strip())

    return router


@contextmanager
def _answers() -> Iterator[None]:
    """Turn an error of the desk into the answer of a route."""
    try:
        yield
    except DeskError as error:
        raise HTTPException(409, str(error)) from error


def _text(given: str) -> str:
    if not (text := given.strip()):
        raise HTTPException(422, "text: empty")
    return text


def _rank(conversation: Conversation) -> tuple[int, int]:
    tier = conversation.tier
    return _ORDER.index(tier.tier), tier.since_us


def _shown(conversation: Conversation, desk_id: str, desk: Desk, *, in_call: bool) -> DeskSession:
    tier = conversation.tier
    said = (event for event in reversed(conversation.events) if event.kind is Kind.USER_TURN)
    last = next(said, None)
    since_s = (conversation.clock.now_us() - tier.since_us) / 1e6 if tier.epoch else None
    return DeskSession(
        id=conversation.session_id,
        tier=tier.tier.value,
        epoch=tier.epoch,
        reason=tier.reason,
        cause=tier.cause,
        since_s=None if since_s is None else round(since_s, 1),
        place=conversation.place,
        in_call=in_call,
        can_speak=in_call and conversation.speaks,
        mine=tier.tier is Tier.HUMAN and desk.holder(conversation.session_id) == desk_id,
        last="" if last is None else text_in(last.payload, "text")[:SHOWN_WORDS_CHARS],
    )
