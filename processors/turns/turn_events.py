"""Publish the events of Pipecat's aggregators and transports as typed events of the call.

Pipecat runs each handler in a task of its own. One handler for each of its events publishes the typed event
and then has ``flush`` push the frames that subscribers left for the pipeline.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMAssistantAggregator,
    LLMUserAggregator,
    UserTurnMessageAddedMessage,
    UserTurnStoppedMessage,
)
from pipecat.transports.base_transport import BaseTransport

from parley.core.call_events import (
    BotTurnEnded,
    CallerJoined,
    TurnEndDecided,
    TurnEnded,
    TurnStarted,
    TurnTranscribed,
)
from parley.runtime.event_stream import CallEvents

Flush = Callable[[], Awaitable[None]]


def publish_arrival(events: CallEvents, transport: BaseTransport) -> None:
    """Publish that the caller is connected."""

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: BaseTransport, _client: object) -> None:
        events.publish(CallerJoined(events.now_ms()))


def publish_turns(events: CallEvents, user: LLMUserAggregator, flush: Flush) -> None:
    """Publish the caller's turns as an aggregator makes them."""

    @user.event_handler("on_user_turn_started")
    async def on_started(_aggregator: Any, _strategy: Any) -> None:
        events.publish(TurnStarted(events.now_ms()))

    @user.event_handler("on_user_turn_stopped")
    async def on_stopped(_aggregator: Any, _strategy: Any, message: UserTurnStoppedMessage) -> None:
        events.publish(TurnEnded(events.now_ms(), message.content or ""))
        await flush()


def publish_service_turns(events: CallEvents, user: LLMUserAggregator, flush: Flush) -> None:
    """Publish the caller's turns as a realtime service makes them: the words arrive separately."""

    @user.event_handler("on_user_turn_started")
    async def on_started(_aggregator: Any, _strategy: Any) -> None:
        events.publish(TurnStarted(events.now_ms()))

    @user.event_handler("on_user_turn_stopped")
    async def on_stopped(_aggregator: Any, _strategy: Any, _message: Any) -> None:
        events.publish(TurnEndDecided(events.now_ms(), 0, None))
        events.publish(TurnEnded(events.now_ms(), ""))
        await flush()

    @user.event_handler("on_user_turn_message_added")
    async def on_message(_aggregator: Any, message: UserTurnMessageAddedMessage) -> None:
        events.publish(TurnTranscribed(events.now_ms(), message.content))


def publish_bot_turns(events: CallEvents, assistant: LLMAssistantAggregator, flush: Flush) -> None:
    """Publish the bot's turns, as far as they were heard."""

    @assistant.event_handler("on_assistant_turn_stopped")
    async def on_stopped(_aggregator: Any, message: AssistantTurnStoppedMessage) -> None:
        events.publish(BotTurnEnded(events.now_ms(), message.content, message.interrupted))
        await flush()
