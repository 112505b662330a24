"""Beginning of a call for the other side: the id of its session, announcements, and the bot's greeting.

A call that goes on after its stream was lost begins with what is owed in its place (``session_store.owed``).
"""

from collections.abc import Sequence
from typing import Any

from pipecat.frames.frames import Frame, LLMRunFrame, TTSSpeakFrame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pipecat.transports.base_transport import BaseTransport

from parley.configs.deployment import Bot
from parley.core.call_events import PhraseChosen, TextGiven
from parley.pipelines.announcements import disclosure_of, say_with_units
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.processors.speech.phrases import protected_phrase
from parley.session_store.conversation import Conversation
from parley.session_store.events import Event
from parley.session_store.owed import OwedWords, is_begun, owed_of


def introduce(worker: PipelineWorker, conversation: Conversation) -> None:
    """Send the other side the id of its session, with which it can resume the session later."""

    @worker.rtvi.event_handler("on_client_ready")
    async def on_ready(_rtvi: Any) -> None:
        data = {"kind": "session", "id": conversation.session_id}
        await worker.queue_frame(RTVIServerMessageFrame(data=data))


def greeting_of(call: Call, bot: Bot) -> TTSSpeakFrame | None:
    """Return the bot's first words to the caller; None when there are none."""
    greeting = first_words(call, bot)
    if not greeting or not call.client.greets:
        return None
    spoken = TTSSpeakFrame(greeting, append_to_context=True)
    spoken.interruptible = bot.greeting_interruptible or call.resumption.goes_on
    return spoken


def announcements_of(engines: Engines, call: Call) -> list[str]:
    """Return the phrases that a call begins with, before the greeting."""
    found = (disclosure_of(call, engines.deployment.bot), engines.recordings.announcement_of(call))
    return [phrase for phrase in found if phrase]


def first_words(call: Call, bot: Bot) -> str:
    """Return the bot's first words, or the first ones over a new stream; empty for none."""
    events = call.conversation.events
    if not events:
        return bot.greeting
    first = call.resumption.first_words
    if first is None:
        return bot.greeting_again
    # In one reply: where it breaks off again, the rest of it is owed again.
    return " ".join(part for part in (first, _owed(call).rest or _lost_greeting(call, bot)) if part)


def _owed(call: Call) -> OwedWords:
    """Return what the lost connection of a call still owed its caller."""
    return owed_of(_of_call(call))


def _of_call(call: Call) -> list[Event]:
    """Return the events of a call, those over its lost connections included."""
    since_seq = call.resumption.earlier.since_seq
    return [event for event in call.conversation.events if since_seq is None or event.seq > since_seq]


def _lost_greeting(call: Call, bot: Bot) -> str:
    """Return the greeting of a call that lost its connection before it; empty where it has begun."""
    since_seq = call.resumption.earlier.since_seq
    if since_seq is None or is_begun(_of_call(call)):
        return ""
    is_first = all(event.seq > since_seq for event in call.conversation.events)
    return bot.greeting if is_first else bot.greeting_again


def _publish_author(call: Call, bot: Bot, words: str) -> None:
    """Publish who wrote the first words over a new stream, where that is not the model."""
    if not call.resumption.goes_on or not words or not call.conversation.events:
        return
    owed, now_ms = _owed(call), call.events.now_ms()
    if not owed.rest and not _lost_greeting(call, bot):
        # Not an answer to the turn before it.
        call.events.publish(PhraseChosen(now_ms, words))
    elif owed.by_human:
        call.events.publish(TextGiven(now_ms, words, by_human=True))


def _publish_opening(call: Call, bot: Bot, announcements: Sequence[str]) -> None:
    """Publish who wrote the first words, and the announcements before them."""
    _publish_author(call, bot, first_words(call, bot))
    for phrase in announcements:
        # A phrase that breaks off is not owed: it is repeated as a whole (``announcements``).
        call.events.publish(PhraseChosen(call.events.now_ms(), phrase))


def _asks_again(call: Call) -> bool:
    """Return whether the last turn of a reconnected call has no answer yet."""
    return call.resumption.goes_on and _owed(call).answer


def greet(
    worker: PipelineWorker,
    transport: BaseTransport,
    call: Call,
    bot: Bot,
    *,
    greets: bool = True,
    asks_again: bool = False,
    announcements: Sequence[str] = (),
    says_rest: bool = False,
) -> None:
    """Greet once: a peer that reconnects in the middle of the conversation is not greeted again.

    ``greets`` is False when another stage greets. ``asks_again``: the pipeline's model answers a turn that
    lost its answer with the stream. ``announcements`` come before the greeting and cannot be interrupted; a
    client whose bot does not greet hears them too, unless its dialect has no place for them. ``says_rest``: a
    client that receives an engine's units hears the rest of a reply that was lost with the stream.
    """
    opening: list[Frame | None] = []
    if greets and call.client.reports_units:
        owed = _owed(call) if says_rest and call.resumption.goes_on else OwedWords()
        # The words of a human are theirs, and not the engine's.
        rest = "" if owed.by_human else owed.rest
        say_with_units(call, announcements if call.client.speaks_announcements else (), rest)
    elif greets and call.client.speaks_announcements:
        opening += [protected_phrase(phrase) for phrase in announcements]
    if greets and call.client.greets:
        is_owed = asks_again and _asks_again(call)
        opening += [greeting_of(call, bot), LLMRunFrame() if is_owed else None]
    phrases = [frame for frame in opening if frame is not None]

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: BaseTransport, _client: object) -> None:
        if phrases:
            _publish_opening(call, bot, announcements)
        while phrases:
            await worker.queue_frame(phrases.pop(0))
