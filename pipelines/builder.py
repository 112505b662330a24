"""The one builder of pipelines: stages in the order of the data, and what every call has around them.

    head -> perception -> turns -> dialogue -> speech -> playout -> tail

``Stages`` is the outline of a pipeline. The cascade, full duplex and a realtime service fill it with
different stages, made from the same parts (``pipelines.stages``); ``build`` makes the pipeline of any of
them. The call of a human at the desk has few of these parts (``build_desk``), and a typed turn has none: the
pipeline that ``build_turn`` makes has no transport and no call.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_response_universal import LLMAssistantAggregator
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_transport import BaseTransport

from parley.core.call_events import DisclosureHeard
from parley.pipelines.announcements import disclosure_of, when_heard
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.service_fallbacks import CLOUD_VOICE_RATE_HZ
from parley.pipelines.greeting import announcements_of, greet, introduce
from parley.pipelines.latency_reports import LatencyReports
from parley.pipelines.lifecycle import OVER_LIMIT, call_worker
from parley.pipelines.media_taps import tapped
from parley.pipelines.turn_records import TurnRecords
from parley.processors.dialogue.rtvi import ShowPicture
from parley.processors.turns.turn_events import publish_arrival, publish_bot_turns

# Tasks that run along with a pipeline. They are created when it runs, so that a failed build leaves none.
Background = Sequence[Callable[[], Coroutine[Any, Any, None]]]


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages of one pipeline; a place that it has no stage for is empty.

    Attributes:
        head: media in, echo control, voice activity.
        perception: words, and other perceived features, in event-time order.
        turns: begin and end of the caller's turns.
        dialogue: from a turn to the words of its answer.
        speech: the voice.
        playout: tracking of playback, and media out.
        tail: the bot's turns.
        unseen: stages whose frames are shown to no client, because they are guesses or are pushed again.
    """

    head: Sequence[FrameProcessor] = ()
    perception: Sequence[FrameProcessor] = ()
    turns: Sequence[FrameProcessor] = ()
    dialogue: Sequence[FrameProcessor] = ()
    speech: Sequence[FrameProcessor] = ()
    playout: Sequence[FrameProcessor] = ()
    tail: Sequence[LLMAssistantAggregator] = ()
    unseen: Sequence[FrameProcessor] = ()

    def in_order(self) -> list[FrameProcessor]:
        """Return the processors in the order of the data."""
        parts = (
            self.head,
            self.perception,
            self.turns,
            self.dialogue,
            self.speech,
            self.playout,
            self.tail,
        )
        return [each for part in parts for each in part]


def build(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    stages: Stages,
    *,
    output_rate_hz: int | None = None,
    refuses_text: str = "",
    take_typed: Callable[[str], float] | None = None,
    show: ShowPicture | None = None,
    greets: bool = True,
    asks_again: bool = False,
    says_rest: bool = False,
) -> PipelineWorker:
    """Return the pipeline of one call, with the parts that every call has around it.

    Args:
        engines: engines of the process.
        transport: transport of the call, Pipecat's or ours.
        call: the call.
        stages: stages of its pipeline.
        output_rate_hz: rate of the bot's audio; None for that of the deployment's voice.
        refuses_text: see ``call_worker``.
        take_typed: counts a text; None when the session does.
        show: takes a picture of the client for the next turn; None where no model sees it.
        greets: the bot begins with the deployment's greeting; otherwise a stage greets.
        asks_again: the pipeline has a model that is asked again for an answer that was lost with a stream.
        says_rest: a client of units hears the rest of a reply that was lost with a stream.
    """
    usage, client = engines.answering.usage, call.client
    processors = stages.in_order()
    if engines.recordings.are_made or engines.live_calls.can_listen:
        processors = tapped(processors, transport, call.live)
    worker = call_worker(
        processors,
        output_rate_hz=output_rate_hz or engines.output_rate_hz,
        unseen=stages.unseen,
        rtvi=call.peer.speaks_rtvi,
        reads_rtvi=client.reads_rtvi,
        refuses_text=refuses_text,
        refuses_turn=lambda: "" if usage.has_request(call.rules.counted) else OVER_LIMIT,
        take_typed=take_typed or call.conversation.take_typed,
        show=show,
    )
    call.live.input.open(worker.queue_frame)
    bot = engines.deployment.bot
    disclosure = disclosure_of(call, bot)
    if disclosure:
        on_heard = partial(_publish_disclosed, call, disclosure)
        when_heard(call.events, disclosure, on_heard, in_units=client.reports_units)
    phrases = announcements_of(engines, call)
    greet(
        *(worker, transport, call, bot),
        greets=greets,
        asks_again=asks_again,
        announcements=phrases,
        says_rest=says_rest,
    )
    TurnRecords(call, sends=call.peer.speaks_rtvi and client.reads_rtvi)
    publish_arrival(call.events, transport)
    for assistant in stages.tail:
        publish_bot_turns(call.events, assistant, call.live.input.flush)
    if call.peer.speaks_rtvi:
        introduce(worker, call.conversation)
        LatencyReports(call.live).listen(worker)
    return worker


def _publish_disclosed(call: Call, phrase: str) -> None:
    call.events.publish(DisclosureHeard(call.events.now_ms(), phrase))


def build_desk(engines: Engines, stages: Stages, *, refuses_text: str) -> PipelineWorker:
    """Return the pipeline of a human at the desk, to whom the bot says nothing.

    Args:
        engines: engines of the process.
        stages: stages of the pipeline.
        refuses_text: reason for refusing all text that the human types.
    """
    return call_worker(
        stages.in_order(),
        output_rate_hz=engines.output_rate_hz,
        unseen=stages.unseen,
        rtvi=True,
        refuses_text=refuses_text,
    )


def build_turn(stages: Stages) -> PipelineWorker:
    """Return the pipeline of a typed turn, of a recording or of an answer that is read out."""
    return call_worker(stages.in_order(), output_rate_hz=CLOUD_VOICE_RATE_HZ, unseen=(), rtvi=False)
