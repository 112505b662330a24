"""The list of what happens in a call.

Frames carry media and text through the pipeline; what *happens* is one of these events, published on the
stream of the call (``runtime.event_stream``). A stage publishes what it decides or notices and subscribes to
what it needs; it does not know its neighbours. ``docs/events.md`` lists who publishes and who subscribes.

Every event is stamped by its publisher on one clock, the one of the event loop (``at_ms``): it does not jump,
and a simulation moves it. Where an event carries a record of what was heard, the moments inside of that
record (``_us``) are on the session clock, because the record goes into the session.
"""

from dataclasses import dataclass

from core.timeline import HeardReply, HeardSoFar


@dataclass(frozen=True, slots=True)
class CallEvent:
    """Something that happened in a call. Subscribe to this class to receive every event.

    Attributes:
        at_ms: when, on the clock of the event loop.
    """

    at_ms: int


# A reply of the bot, from the first word of the model to the last packet.


@dataclass(frozen=True, slots=True)
class ReplyOpened(CallEvent):
    """The model begins to write a reply."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class ReplyWritten(CallEvent):
    """The model has written all of a reply."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class ReplyAnnounced(CallEvent):
    """The voice begins to synthesize a reply. Published again when the reply turns out to be protected.

    Attributes:
        protected: the reply may not be interrupted.
    """

    reply_id: str
    protected: bool


@dataclass(frozen=True, slots=True)
class ClauseAnnounced(CallEvent):
    """The voice is about to say the next clause of a reply."""

    reply_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ReplyStarted(CallEvent):
    """The first sound of a reply leaves. A reply may start that was never announced."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class WordsSpoken(CallEvent):
    """Words of the bot have passed the output; a voice without word times gives a sentence at a time."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyProgressed(CallEvent):
    """Another clause of a reply was heard."""

    heard: HeardSoFar


@dataclass(frozen=True, slots=True)
class ReplyFinished(CallEvent):
    """A reply was heard to its end, was cut off, or has no sound."""

    heard: HeardReply
