"""Compare a client's own list of the conversation with the session.

Clients of a turn-based protocol send the whole conversation, as they show it, with every turn. The part that
the session has already is not written again. Where the two diverge (the person edited an earlier message, or
wants another answer) the session follows the client: its own events from there on no longer count. Turns that
came over another transport in between, such as a call, are unknown to the client, so they stay. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from parley.core.pictures import Picture
from parley.session_store.events import Event, Kind
from parley.session_store.memory import current_events, text_in
from parley.session_store.prompt import pictures_in

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class DisplayedMessage:
    """Message that a client shows.

    Attributes:
        role: author of the message.
        text: its words.
        pictures: its pictures, in order.
        uses: calls of the client's own tools for it, in order.
    """

    role: Role
    text: str
    pictures: tuple[Picture, ...] = ()
    uses: tuple["ClientToolUse", ...] = ()


@dataclass(frozen=True, slots=True)
class ClientToolUse:
    """Call of a tool of the client, with its result.

    Attributes:
        call_id: by which the client refers to the call.
        name: of the tool.
        arguments: as JSON, or any other text.
        result: as the client returned it.
    """

    call_id: str
    name: str
    arguments: str
    result: str

    @property
    def text(self) -> str:
        """All text of the client in it, for limits."""
        return "\n".join((self.call_id, self.name, self.arguments, self.result))


@dataclass(frozen=True, slots=True)
class Parting:
    """Point from which a client's list differs from the session.

    Attributes:
        new: messages of the list that the session does not have.
        gone: events of the session that no longer count, in order.
    """

    new: tuple[DisplayedMessage, ...]
    gone: tuple[Event, ...]

    @property
    def supersedes(self) -> tuple[str, ...]:
        """Keys of the events that no longer count, and of the facts extracted from them."""
        keys: list[str] = []
        for event in self.gone:
            keys.append(event.key)
            if event.kind is Kind.USER_TURN:
                keys.append(f"{event.key}.state")
        return tuple(keys)


def parting(events: Iterable[Event], shown: Sequence[DisplayedMessage], *, transport: str) -> Parting:
    """Return the difference between a client's list and the session.

    Args:
        events: of the session, including superseded ones.
        shown: the client's list, without the message to be answered now.
        transport: of such clients; turns of another transport are skipped where the list does not have them.
    """
    turns = [event for event in current_events(events) if event.kind in (Kind.USER_TURN, Kind.BOT_TURN)]
    at, parted = 0, False
    gone: list[Event] = []
    for turn in turns:
        if not parted and at < len(shown) and _says(turn, shown[at]):
            at += 1
        elif turn.payload.get("transport") == transport:
            parted = True
            gone.append(turn)
    return Parting(tuple(shown[at:]), tuple(gone))


def _says(turn: Event, said: DisplayedMessage) -> bool:
    role = "user" if turn.kind is Kind.USER_TURN else "assistant"
    if role != said.role or text_in(turn.payload, "text").split() != said.text.split():
        return False
    return [each.key for each in pictures_in(turn)] == [each.key for each in said.pictures]
