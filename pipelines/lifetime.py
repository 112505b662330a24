"""What every call has around its pipeline, whatever answers in it: its beginning, its ends, its record."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from loguru import logger
from pipecat.frames.frames import EndFrame, TTSSpeakFrame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_response_universal import AssistantTurnStoppedMessage
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pipecat.transports.base_transport import BaseTransport
from pipecat.workers.runner import WorkerRunner

from configs.deployment import Bot
from pipelines.call import Call
from processors.turns.idle import IdleKeeper
from session_store.conversation import Conversation

INPUT_RATE_HZ = 16_000
# Over these nobody listens who could fall silent: a recording speaks, or a script.
WITHOUT_A_PERSON = ("file", "eval")


async def run_beside(runner: WorkerRunner, beside: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run until the conversation is over, beside what watches it, which ends with it."""
    async with asyncio.TaskGroup() as tasks:
        watching = [tasks.create_task(each, name="conversation.watch") for each in beside]
        try:
            await runner.run()
        finally:
            for watch in watching:
                watch.cancel()


def enders(
    idle: IdleKeeper, worker: PipelineWorker, call: Call, *, rtvi: bool, finished: asyncio.Event | None
) -> list[Coroutine[Any, Any, None]]:
    """What ends a call: silence, a session that is gone, and whoever sets ``finished``."""
    watching = [
        idle.run(worker.queue_frame),
        _end_when_lost(call.conversation, worker, rtvi=rtvi),
    ]
    return [*watching, _end_when(finished, worker)] if finished else watching


async def _end_when(finished: asyncio.Event, worker: PipelineWorker) -> None:
    await finished.wait()
    await worker.queue_frame(EndFrame())


async def _end_when_lost(conversation: Conversation, worker: PipelineWorker, *, rtvi: bool) -> None:
    """Another process claimed the session, or somebody deleted it: nothing that is said here is kept."""
    await conversation.lost.wait()
    logger.warning(f"the session is gone from here: {conversation.loss}")
    if rtvi:
        reason = str(conversation.loss)
        await worker.queue_frame(RTVIServerMessageFrame(data={"kind": "session_lost", "reason": reason}))
    await worker.queue_frame(EndFrame())


def introduce(worker: PipelineWorker, conversation: Conversation) -> None:
    """Tell the other side which session this is: with its id it can come back."""

    @worker.rtvi.event_handler("on_client_ready")
    async def on_ready(_rtvi: Any) -> None:
        data = {"kind": "session", "id": conversation.session_id}
        await worker.queue_frame(RTVIServerMessageFrame(data=data))


def greet(worker: PipelineWorker, transport: BaseTransport, conversation: Conversation, bot: Bot) -> None:
    """Greet once: a peer that reconnects in the middle of the conversation is not greeted again."""
    greeting = bot.greeting_again if conversation.events else bot.greeting
    greeted = False

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: BaseTransport, _client: object) -> None:
        nonlocal greeted
        if greeting and not greeted:
            greeted = True
            spoken = TTSSpeakFrame(greeting, append_to_context=True)
            spoken.interruptible = bot.greeting_interruptible
            await worker.queue_frame(spoken)


def record_turns(worker: PipelineWorker, assistant: FrameProcessor, call: Call, *, rtvi: bool) -> None:
    """Close the record of a turn when the bot has been heard, and tell the other side."""
    turns = call.turns

    @assistant.event_handler("on_assistant_turn_stopped")
    async def on_bot_turn(_aggregator: Any, message: AssistantTurnStoppedMessage) -> None:
        turns.bot_said(message.content, interrupted=message.interrupted)
        turns.close()
        records = [record.as_message() for record in turns.drain()]
        replies = call.drain_heard()
        if message.content and not any(reply.in_context for reply in replies):
            # Not for the voice (a client that reads): nothing of it was played, all of it was shown.
            call.wrote(message.content, interrupted=message.interrupted)
        heard = [reply.as_message() for reply in replies]
        if rtvi:
            for data in [*heard, *records]:
                await worker.queue_frame(RTVIServerMessageFrame(data=data))
