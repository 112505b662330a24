"""Messages between the media process, which keeps the streams of phone calls, and the conversation process.

Both sides are processes of one program on one machine (ADR 0023). They exchange frames of the engine-process
library. The stream of a frame is the number of a call. Pure.

To the conversation: ``open``, with ``StreamOpened``; ``audio``, 16-bit PCM of the caller at 8 kHz; ``taken``,
with ``AudioSent``; ``piece``, a packet that was played; ``state``, with ``KeyPressed`` or ``DelayMeasured``;
``done``, the answer to ``finish``; ``release``, with ``StreamEnd``. To the media process: ``audio``, mu-law
of the bot; ``discard``, which begins a new run; ``state``, with ``MarkQueued``, ``ReplyEnded``,
``TurnBegan``, ``TurnSettled``, ``PauseBegan`` or ``PauseEnded``; ``finish``, with ``PlayedOut``; ``release``,
with ``StreamEnd``. The number of ``audio``, ``taken`` and ``piece`` is that of their run.

Outside of calls: ``state`` with ``Serving``, when the process takes calls; ``speak``, a ``PreparedClause``;
``stop``, on which the process ends in order. A connection is handed over by a datagram (``HandedOver``) that
carries its descriptor.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parley.core.errors import PeerError
from parley.protocols.facts import from_facts, to_facts

MOST_DATAGRAM_BYTES = 65_536
# Names of the clauses that are said without a conversation process.
FILLER, APOLOGY = "filler", "apology"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Connection that becomes the media stream of a call.

    Attributes:
        pid: process that hands it over.
        number: of the call.
        network: name of its transport.
        call_sid: the only call whose stream it may be; empty for any.
        call: facts of the call, which come back when the call goes on in another process.
        response: answer to the handshake, which is still to be sent, in Latin-1.
    """

    pid: int
    number: int
    network: str
    call_sid: str
    call: dict[str, Any]
    response: str

    def encode(self) -> bytes:
        """Return the datagram."""
        return json.dumps(to_facts(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "HandedOver":
        """Return what a datagram carries.

        Raises:
            PeerError: it cannot be read.
        """
        try:
            facts = json.loads(data)
        except ValueError as error:
            raise PeerError("an unreadable hand-over") from error
        return from_facts(cls, facts)


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """Stream of a call that has begun, or goes on.

    Attributes:
        stream_sid, call_sid, account_sid, parameters: as in ``twilio_media.Started``.
        call: facts of a call that goes on; None for one that begins.
        paused_by: who began its private pause, which goes on too; empty where there is none.
    """

    stream_sid: str
    call_sid: str
    account_sid: str
    parameters: dict[str, Any]
    call: dict[str, Any] | None
    paused_by: str = ""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """End of a stream, as a word and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AudioSent:
    """Audio of the bot that was passed on to the network's packets; more may come."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class PlayedOut:
    """Question whether all has been played.

    Attributes:
        within_s: longest wait.
    """

    within_s: float


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """Key of the caller."""

    digit: str


@dataclass(frozen=True, slots=True)
class DelayMeasured:
    """Delays of the line, as ``Listener.delay`` has them."""

    delay_ms: int
    unplayed_ms: int


@dataclass(frozen=True, slots=True)
class MarkQueued:
    """A mark follows the audio so far."""


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """The audio that follows belongs to another reply."""


@dataclass(frozen=True, slots=True)
class TonesQueued:
    """The next ``audio`` is the tones of keys."""


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """A turn of the caller has begun.

    Attributes:
        at_bytes: place in the audio of the caller that the conversation has received.
    """

    at_bytes: int


@dataclass(frozen=True, slots=True)
class TurnSettled:
    """The words of the caller up to this place are committed, or are none."""

    at_bytes: int


@dataclass(frozen=True, slots=True)
class PauseBegan:
    """A private pause has begun: nothing that the caller says is kept.

    Attributes:
        by: as in ``PrivatePauseBegan``.
    """

    by: str


@dataclass(frozen=True, slots=True)
class PauseEnded:
    """The private pause is over."""


@dataclass(frozen=True, slots=True)
class PreparedClause:
    """Clause that the media process may say; its audio is the payload, mu-law.

    Attributes:
        name: of the clause.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Serving:
    """The process takes calls."""


StateMessage = (
    KeyPressed
    | DelayMeasured
    | MarkQueued
    | ReplyEnded
    | TonesQueued
    | TurnBegan
    | TurnSettled
    | PauseBegan
    | PauseEnded
    | Serving
)
_STATES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        KeyPressed,
        DelayMeasured,
        MarkQueued,
        ReplyEnded,
        TonesQueued,
        TurnBegan,
        TurnSettled,
        PauseBegan,
        PauseEnded,
        Serving,
    )
}


def state_facts(state: StateMessage) -> dict[str, Any]:
    """Return the facts of a ``state`` message."""
    return {"kind": type(state).__name__, **to_facts(state)}


def read_state(facts: Mapping[str, Any]) -> StateMessage:
    """Return the state of a ``state`` message.

    Raises:
        PeerError: it is unknown, or cannot be read.
    """
    kind = _STATES.get(str(facts.get("kind")))
    if kind is None:
        raise PeerError("an unknown state of a stream")
    state: StateMessage = from_facts(kind, facts)
    return state
