"""Stages around a realtime service: its instructions, the caller's turns, and its replies."""

from dataclasses import dataclass
from typing import Any, cast

from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.aggregators.llm_response_universal import LLMUserAggregator, LLMUserAggregatorParams
from pipecat.turns.user_start import ExternalUserTurnStartStrategy, VADUserTurnStartStrategy
from pipecat.turns.user_stop import ExternalUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies

from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.greeting import first_words
from parley.pipelines.lifecycle import history_of
from parley.processors.duplex.realtime import RealtimeReplies, ServiceGate, TypedWords
from parley.processors.duplex.services import Opening, RealtimeRow, TurnSource, TypedInput
from parley.processors.turns.silence_stop import SilenceStopStrategy

# Silence after the end of a voice that ends a turn, where no service reports it: about that of providers.
TURN_SILENCE_MS = 600

GREET = (
    "The call begins now, and the person on the line has said nothing yet. Greet them with these words: {}"
)
BEFORE = "What was said in this conversation before this call, as far as it was heard:"


@dataclass(frozen=True)
class Beginning:
    """Instructions, history and greeting in the form that the service takes.

    Attributes:
        instructions: system prompt of the service.
        messages: its first context.
        is_sent: True when a first context is sent at all.
        greets: True when it was asked to greet.
    """

    instructions: str
    messages: tuple[dict[str, str], ...]
    is_sent: bool
    greets: bool


def beginning(
    opening: Opening, *, prompt: str, greeting: str, history: tuple[tuple[str, str], ...]
) -> Beginning:
    """Return the instructions of a service at the beginning of a call.

    Args:
        opening: form in which the service takes them.
        prompt: system prompt of the deployment.
        greeting: first words of the bot; empty to wait for the caller.
        history: role and words of the conversation so far.
    """
    ask = GREET.format(greeting) if greeting else ""
    if opening is Opening.CONTEXT or (opening is Opening.ANSWERED_CONTEXT and ask):
        said = [{"role": role, "content": words} for role, words in history]
        asked = [{"role": "developer", "content": ask}] if ask else []
        return Beginning(prompt, (*said, *asked), is_sent=True, greets=bool(ask))
    # The service would answer a context, or does not read it.
    said_before = "\n".join((BEFORE, *(f"{role}: {words}" for role, words in history))) if history else ""
    by_instruction = ask if opening is Opening.INSTRUCTIONS else ""
    whole = "\n\n".join(part for part in (prompt, said_before, by_instruction) if part)
    return Beginning(whole, (), is_sent=False, greets=bool(by_instruction))


def beginning_of(engines: Engines, row: RealtimeRow[Any], call: Call) -> Beginning:
    """Return the instructions of the service when the call begins."""
    bot, conversation = engines.deployment.bot, call.conversation
    return beginning(
        row.opening,
        prompt=call.choices.prompt(bot.system_prompt),
        greeting=first_words(call, bot),
        history=history_of(conversation),
    )


def text_refusal(row: RealtimeRow[Any]) -> str:
    """Return the reason for refusing text that a client types; empty where the service takes it."""
    takes_text = row.typing is not TypedInput.NONE
    return "" if takes_text else f"{row.name} takes no typed words in a call. Please say it."


class ServiceStages:
    """Stages around the service.

    Args:
        row: row of the service.
        call: the call.
        takes_contexts: see ``ServiceGate``.

    Attributes:
        gate: keeps frames from the service that are not for it.
        typed: passes typed words around the turn stages.
        replies: makes replies of the service's speech.
    """

    def __init__(self, row: RealtimeRow[Any], call: Call, *, takes_contexts: bool) -> None:
        self.gate = ServiceGate(takes_contexts=takes_contexts)
        self.typed = TypedWords(row.typing, hand_on=self.gate.push_frame, events=call.events)
        self.replies = RealtimeReplies(call.live.playout, continuous=row.continuous, events=call.events)

    def hold(self) -> None:
        """Keep the caller's audio from the service, and what it says from the caller, until ``release``."""
        self.gate.hold()
        self.replies.hold()

    async def release(self) -> None:
        """Let the service and the caller hear each other."""
        self.gate.release()
        await self.replies.release()


def user_aggregator(row: RealtimeRow[Any], start: Beginning) -> LLMUserAggregator:
    """Return the aggregator that begins and ends the caller's turns."""
    return LLMUserAggregator(
        LLMContext(messages=cast(list[LLMContextMessage], list(start.messages))),
        params=LLMUserAggregatorParams(user_turn_strategies=_strategies(row.turns), empty_user_turn=None),
    )


def ask_last(context: LLMContext, start: Beginning) -> None:
    """Put the request for a greeting after what was said before it: a service answers the last message."""
    if start.is_sent and start.greets:
        asked = start.messages[-1]
        said = [message for message in context.get_messages() if message != asked]
        context.set_messages([*said, cast(LLMContextMessage, asked)])


def _strategies(turns: TurnSource) -> UserTurnStrategies:
    """Return the rules that begin and end the caller's turns, and interrupt the bot; none waits for words."""
    if turns is TurnSource.VOICE:
        return UserTurnStrategies(
            start=[VADUserTurnStartStrategy(enable_interruptions=False)],
            stop=[SilenceStopStrategy(TURN_SILENCE_MS)],
        )
    # A service that falls silent by itself sends the words of a turn before it reports its end.
    alone = turns is TurnSource.SERVICE_ALONE
    return UserTurnStrategies(
        start=[ExternalUserTurnStartStrategy(enable_interruptions=not alone)],
        stop=[ExternalUserTurnStopStrategy(wait_for_transcript=alone)],
    )
