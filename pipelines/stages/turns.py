"""Turn-taking of a cascade: the stages that begin and end the caller's turns, and backchannels in them."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from loguru import logger
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMUserAggregator, LLMUserAggregatorParams
from pipecat.transports.base_transport import BaseTransport
from pipecat.turns.user_start import (
    BaseUserTurnStartStrategy,
    TranscriptionUserTurnStartStrategy,
    VADUserTurnStartStrategy,
)
from pipecat.turns.user_turn_strategies import UserTurnStrategies

from parley.core.tuning import tuned
from parley.pipelines.builder import Background
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines, name_of
from parley.pipelines.listeners import Listener
from parley.pipelines.stages.call_voice import CallVoice
from parley.pipelines.stages.over_bot import OverBot
from parley.pipelines.stages.shared import gain_of
from parley.pipelines.voice.echo import CallFrontEnd
from parley.processors.front_end.vad import SharedVadAnalyzer
from parley.processors.turns.backchannel import BackchannelSpeaker, Say
from parley.processors.turns.barge_in import BargeInStartStrategy
from parley.processors.turns.endpoint import EndpointStopStrategy
from parley.processors.turns.estimates import CallEstimates
from parley.processors.turns.settled_words import SettlingUserAggregator
from parley.turn_taking.backchannel import BackchannelPolicy
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.endpointing.policies import endpoint_policy
from parley.turn_taking.speculation import Guesser

# Pipecat's own end of a turn that no strategy ends, after this silence without words. It is above all waits
# of ours: with its default of 5 s it ended turns whose words the recogniser still owed.
STOP_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class TurnStages:
    """Stages that detect the caller's turns.

    Attributes:
        user: begins and ends the caller's turns.
        vad: detects voices.
        overhear: takes audio of the open turn that came before these stages were there.
    """

    user: LLMUserAggregator
    vad: SharedVadAnalyzer
    overhear: Listener


def turns_of(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    context: LLMContext,
    over_bot: OverBot,
    front: CallFrontEnd,
    *,
    detector: Callable[[Sequence[Listener]], SharedVadAnalyzer],
    listeners: Sequence[Listener],
    words_of_turn: Callable[[str], str],
) -> TurnStages:
    """Return the stages that detect the caller's turns.

    ``detector`` returns the detector of voices, which passes the caller's audio to the given listeners;
    ``listeners`` receive it too; ``words_of_turn`` decides the words of a turn that is over.
    """
    ends = engines.deployment.hearing.endpoint
    if (patience := call.client.requested().patience) is not None:
        ends = ends.model_copy(update={"patience": patience})
    endpoint = EndpointStopStrategy(
        endpoint_policy(ends, engines.deployment.language()),
        completeness=engines.turn,
        executor=engines.executors.turn,
        events=call.events,
        guesser=Guesser(engines.deployment.thinking.speculation),
        estimates=_estimates(engines, call),
    )
    starts = _starts(
        engines,
        transport,
        call,
        endpoint,
        over_bot,
        front,
        interrupt=lambda: user.broadcast_interruption(),
        vad=lambda: vad,
    )
    user = SettlingUserAggregator(
        context,
        words_of_turn=words_of_turn,
        params=LLMUserAggregatorParams(
            user_turn_strategies=UserTurnStrategies(start=starts, stop=[endpoint]),
            user_turn_stop_timeout=STOP_TIMEOUT_S,
            # Pipecat would have the model answer a developer message, which stays in the context and which
            # the documents take for a question. ``Reprompt`` asks again instead.
            empty_user_turn=None,
        ),
    )
    hear_voices = [] if front.echo else over_bot.listeners
    hear = [call.live.turns.heard, endpoint.hear, *listeners, *hear_voices]
    vad = detector(hear)
    return TurnStages(user, vad, endpoint.overhear)


class _SoundOfCall:
    """Sound of the caller of one call; see ``CallerSound``.

    Args:
        front: echo control of the call.
        vad: returns the detector of voices, which is made after this object.
    """

    def __init__(self, front: CallFrontEnd, vad: Callable[[], SharedVadAnalyzer]) -> None:
        self._front, self._vad = front, vad

    @property
    def finds_own(self) -> bool:
        return bool(self._front.echo)

    def heard_ms(self) -> int | None:
        return self._vad().judged_ms

    def level_db(self) -> float | None:
        return self._vad().voice_level_db

    def is_own(self) -> bool | None:
        return self._front.self_voice.is_own()

    def are_own(self, text: str) -> bool:
        return self._front.are_own(text)


def _estimates(engines: Engines, call: Call) -> CallEstimates | None:
    """Return the estimates of a call that is recorded; None of another one, and without a model."""
    chosen = engines.deployment.hearing.turn
    if chosen is None or not engines.recordings.are_made:
        return None
    return CallEstimates(call.events, name_of(chosen), call.resumption.recorded_estimates)


def guards_protected(engines: Engines) -> bool:
    """Return whether a protected reply yields to a stop word."""
    settings = engines.deployment.hearing.barge_in
    return settings is not None and tuned(BargeInTuning, settings).protected_yields_to_stop


def backchannels(engines: Engines, call: Call, say: Say) -> Background:
    """Return the task that speaks backchannels; none where the client or the deployment has none.

    There is none either without a completeness model, which detects an unfinished turn.
    """
    settings = engines.deployment.speaking.backchannel
    if not call.client.hums or settings is None:
        return []
    if engines.turn is None:
        logger.warning("speaking.backchannel needs hearing.turn, which is off: the bot gives no backchannels")
        return []
    keeper = BackchannelSpeaker(
        call.events,
        BackchannelPolicy(settings, language=engines.deployment.language()),
        sound=CallVoice(engines, call).kept,
        rate_hz=engines.output_rate_hz,
        # Plain audio, after every stage that would take it for a reply.
        say=say,
    )
    return [keeper.run]


def _starts(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    endpoint: EndpointStopStrategy,
    over_bot: OverBot,
    front: CallFrontEnd,
    *,
    interrupt: Callable[[], Coroutine[Any, Any, None]],
    vad: Callable[[], SharedVadAnalyzer],
) -> list[BaseUserTurnStartStrategy]:
    """Return the rules that begin the caller's turns and decide about voices over the bot."""
    settings = engines.deployment.hearing.barge_in
    if settings is None:
        return [VADUserTurnStartStrategy(), TranscriptionUserTurnStartStrategy()]
    strategy = BargeInStartStrategy(
        BargeIn(settings, vocabulary=engines.deployment.language().vocabulary),
        call.events,
        endpoint=endpoint,
        set_gain_db=gain_of(transport),
        interrupt=interrupt,
        sound=_SoundOfCall(front, vad),
        stop_words=over_bot.stop_words,
        looks=over_bot.looks,
    )
    return [strategy]
