"""A client's own list of what was said, beside what the session has.

Clients of a turn-based protocol send the whole conversation with every turn, as they show it. What the
session has already is not written again; where the two part (the person edited what they had said, or wants
another answer) the session follows the client, and what it had from there on counts no more. What came over
another way in between, a call for example, the client cannot know: it stays. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from session_store.events import Event, Kind
from session_store.memory import current_events, text_in

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Said:
    """Something that a client shows."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a client's list leaves what the session has.

    Attributes:
        new: of the list, what the session does not have.
        gone: events of the session that count no more, in order.
    """

    new: tuple[Said, ...]
    gone: tuple[Event, ...]

    @property
    def supersedes(self) -> tuple[str, ...]:
        """Keys of what counts no more, and of what was learnt from it."""
        keys: list[str] = []
        for event in self.gone:
            keys.append(event.key)
            if event.kind is Kind.USER_TURN:
                keys.append(f"{event.key}.state")
        return tuple(keys)


def parting(events: Iterable[Event], shown: Sequence[Said], *, transport: str) -> Parting:
    """Compare.

    Args:
        events: of the session, also those that others supersede.
        shown: the client's list, without what is to be answered now.
        transport: of such clients; turns of another one are passed over where the list does not have them.
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


def _says(turn: Event, said: Said) -> bool:
    role = "user" if turn.kind is Kind.USER_TURN else "assistant"
    return role == said.role and text_in(turn.payload, "text").split() == said.text.split()
