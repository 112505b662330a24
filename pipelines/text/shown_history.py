"""Bring a session to the conversation that its client shows, before the client's next turn.

For protocols whose clients send the whole conversation with every turn. Turns that the session has already
are not written again. Where the two differ, the session follows the client (``session_store.history``).
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from parley.core.pictures import Picture
from parley.pipelines.text.client_tool_uses import use_drafts
from parley.protocols.client_protocol import ProtocolError
from parley.serving.gateway.limits import ShareError
from parley.session_store.conversation import Conversation
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.history import DisplayedMessage, Parting, parting
from parley.session_store.store import SessionReader


async def parted_from(
    conversation: Conversation,
    store: SessionReader,
    shown: Sequence[DisplayedMessage],
    *,
    transport: str,
) -> Parting:
    """Return the difference between the messages that a client shows and its session.

    Args:
        conversation: the session.
        store: store of the session.
        shown: the client's messages, without the one to be answered now.
        transport: of such clients.

    Raises:
        ProtocolError: they differ in a turn that is only kept as a summary.
    """
    await conversation.in_time(conversation.flushed())
    events = await _turns(conversation, store)
    as_stored = [
        replace(each, text=conversation.words_as_stored(each.text, is_caller=each.role == "user"))
        for each in shown
    ]
    parted = parting(events, as_stored, transport=transport)
    until_seq = conversation.view().until_seq
    if any(event.seq <= until_seq for event in parted.gone):
        raise ProtocolError(
            "messages: they differ from the session in a turn that is only kept as a summary; begin a new "
            "conversation",
            code="too_old",
            param="messages",
        )
    return parted


def texts_of(parted: Parting) -> tuple[str, ...]:
    """Return the texts that the client adds with earlier messages, those of its tools included."""
    used = (use.text for said in parted.new for use in said.uses)
    return (*(said.text for said in parted.new), *used)


def pictures_of(parted: Parting) -> tuple[Picture, ...]:
    """Return the pictures that the client adds with earlier messages."""
    return tuple(each for said in parted.new for each in said.pictures)


def take_share(conversation: Conversation, texts: Iterable[str], pictures: Sequence[Picture]) -> None:
    """Count what a request puts into a session, all of it or nothing.

    Raises:
        ShareError: it is too much in a short time.
        OversizedError: the texts are more than a session ever takes.
    """
    text = "\n".join(texts)
    wait_s = conversation.typed_wait_s(text)
    if wait_s:
        raise ShareError(
            "too much text was typed into this session, try again later", limit=0, retry_s=wait_s
        )
    if wait_s := conversation.take_pictures(pictures):
        raise ShareError(
            "too many pictures were put into this session, try again later", limit=0, retry_s=wait_s
        )
    # There is room for it, as asked above: nothing else runs in between.
    conversation.take_typed(text)


def brought_turns(
    conversation: Conversation, parted: Parting, *, transport: str, mark: Mapping[str, object]
) -> list[Draft]:
    """Return the turns that the client adds; the first supersedes those that no longer count.

    Args:
        conversation: the session.
        parted: difference between the client and the session.
        transport: of such clients.
        mark: payload that marks calls and results of tools as text of the client.
    """
    drafts: list[Draft] = []
    pictures = 0
    for number, said in enumerate(parted.new):
        payload: dict[str, Any] = {"text": said.text, "transport": transport, "brought": True}
        if parted.supersedes and not number:
            payload["supersedes"] = list(parted.supersedes)
        if said.pictures:
            payload["pictures"] = conversation.name_pictures(said.pictures, before=pictures)
            drafts += conversation.picture_drafts(said.pictures)
            pictures += len(said.pictures)
        if said.role == "user":
            drafts.append(conversation.draft(Kind.USER_TURN, "user", payload))
            drafts += use_drafts(conversation, said.uses, turn=None, mark=mark)
        else:
            payload |= {"reply_id": uuid.uuid4().hex, "truncated": False, "unheard": ""}
            drafts.append(conversation.draft(Kind.BOT_TURN, "bot", payload))
    return drafts


async def _turns(conversation: Conversation, store: SessionReader) -> list[Event]:
    return await store.all_events(conversation.session_id, kinds=[Kind.USER_TURN, Kind.BOT_TURN])
