"""Beginning of a call for the other side: the id of its session, the announcement, and the bot's greeting."""

from typing import Any

from pipecat.frames.frames import TTSSpeakFrame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pipecat.transports.base_transport import BaseTransport

from parley.configs.deployment import Bot
from parley.pipelines.call import Call
from parley.session_store.conversation import Conversation


def introduce(worker: PipelineWorker, conversation: Conversation) -> None:
    """Send the other side the id of its session, with which it can resume the session later."""

    @worker.rtvi.event_handler("on_client_ready")
    async def on_ready(_rtvi: Any) -> None:
        data = {"kind": "session", "id": conversation.session_id}
        await worker.queue_frame(RTVIServerMessageFrame(data=data))


def greeting_of(call: Call, bot: Bot) -> TTSSpeakFrame | None:
    """Return the bot's first words to the caller; None when there are none."""
    greeting = bot.greeting_again if call.conversation.events else bot.greeting
    if not greeting or not call.client.greets:
        return None
    spoken = TTSSpeakFrame(greeting, append_to_context=True)
    spoken.interruptible = bot.greeting_interruptible
    return spoken


def greet(
    worker: PipelineWorker,
    transport: BaseTransport,
    call: Call,
    bot: Bot,
    *,
    greets: bool = True,
    announcement: str = "",
) -> None:
    """Greet once: a peer that reconnects in the middle of the conversation is not greeted again.

    ``greets`` is False when another stage greets. ``announcement`` comes before the greeting and cannot be
    interrupted.
    """
    opening = [greeting_of(call, bot)]
    if announcement:
        spoken = TTSSpeakFrame(announcement, append_to_context=True)
        spoken.interruptible = False
        opening.insert(0, spoken)
    phrases = [phrase for phrase in opening if phrase is not None] if greets and call.client.greets else []

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: BaseTransport, _client: object) -> None:
        while phrases:
            await worker.queue_frame(phrases.pop(0))
