"""Full duplex by a service of Pipecat: one model at its provider that recognises, decides and speaks.

``run_realtime`` builds one call's pipeline around the service that the deployment names, runs it until the
caller is gone and returns. The service receives all of the call's audio and answers by itself. Answers are
not held back until a turn is durable, because the service decides when it answers. The playout clock follows
its speech, and the caller's turns consist of its transcripts.

    transport.input -> (echo control) -> VAD -> perception -> turns -> voice -> service -> replies
        -> transport.output -> (heard) -> bot turns

The deployment's voice says announcements, prompts a silent caller and apologises; it comes before the
service, which passes unrelated frames on. The service begins after the announcements
(``pipelines.stages.service_announcements``). Voice activity serves the idle prompts, the time at which a turn
began, and clients of services that do not report the caller's speech. A service that reports an error counts
as gone: the bot apologises, and the call ends. With a fallback the call goes on
(``pipelines.voice.realtime_failover``).
"""

import asyncio
from functools import partial
from typing import Any

from loguru import logger
from pipecat.pipeline.worker import PipelineWorker
from pipecat.transports.base_transport import BaseTransport

from parley.core.errors import ConfigError
from parley.pipelines.builder import Background, Stages, build
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.service_fallbacks import CLOUD_VOICE_RATE_HZ
from parley.pipelines.lifecycle import idle_keeper, run_call
from parley.pipelines.modes import REALTIME
from parley.pipelines.stages.service import (
    ServiceStages,
    beginning_of,
    text_refusal,
    user_aggregator,
)
from parley.pipelines.stages.service_announcements import service_announcements
from parley.pipelines.stages.service_ends import ServiceAllowance, ServiceEnding
from parley.pipelines.stages.service_start import ServiceStart
from parley.pipelines.stages.shared import (
    closed_on_failure,
    perception_of,
    voice_detector,
)
from parley.pipelines.stages.sight import sight_of
from parley.pipelines.voice.echo import CallFrontEnd, with_echo_control
from parley.pipelines.voice.realtime_failover import run_with_fallback
from parley.processors.duplex.answer_watch import AnswerWatch
from parley.processors.duplex.caller_turns import CallerTurns
from parley.processors.duplex.services import RealtimeRow
from parley.processors.perception.voice_activity import VoiceActivity
from parley.processors.playout.assistant import HeardAssistantAggregator
from parley.processors.turns.turn_events import publish_service_turns


async def run_realtime(engines: Engines, transport: BaseTransport, call: Call) -> None:
    """Hold one conversation with a realtime service over ``transport`` until it ends.

    Raises:
        ConfigError: the deployment names no realtime service, or it cannot be built.
    """
    row = engines.realtime
    if row is None:
        raise ConfigError("duplex.engine: this deployment names no realtime service")
    if engines.deployment.thinking.tools:
        logger.warning("a realtime service gets no tools in this version; thinking.tools is ignored")
    if engines.realtime_fallback is not None:
        await run_with_fallback(engines, row, engines.realtime_fallback, transport, call)
        return
    idle = idle_keeper(engines, call)
    with closed_on_failure() as opened:
        opened.append(front := CallFrontEnd(engines.open_front_end()))
        worker, caller, background = await _build(engines, row, transport, call, front)
    await run_call(
        engines,
        worker,
        transport,
        call,
        idle,
        mode=REALTIME,
        background=[start() for start in background],
        before_close=caller.close,
        # Its service answers what it hears.
        reads_annotations=False,
    )


async def _build(
    engines: Engines,
    row: RealtimeRow[Any],
    transport: BaseTransport,
    call: Call,
    opened: CallFrontEnd,
) -> tuple[PipelineWorker, CallerTurns, Background]:
    """Return the pipeline of one call, the writer of the caller's words, and the tasks. Loads no model."""
    events, start = call.events, beginning_of(engines, row, call)
    front, tts, service = await asyncio.gather(
        with_echo_control(engines, transport, call, opened),
        engines.build_tts(events),
        asyncio.to_thread(row.build, engines.answering.shared, system_instruction=start.instructions),
    )
    perception = perception_of(engines, call, row.name)
    specialists = engines.specialists_of(call.conversation, events)
    sight = sight_of(engines, call, has_model=False, passes_on=False)
    caller = CallerTurns(call.conversation, events, transport=call.transport, perceive=perception.take)
    user = user_aggregator(row, start)
    watch = AnswerWatch(engines.deployment.duplex.answer_ms, events, is_speaking=call.live.floor.holds_reply)
    model = ServiceStages(row, call, takes_contexts=start.is_sent)
    thought, entry, exit_ = call.live.playout.taps()
    vad = voice_detector(engines, call, front, [call.live.turns.heard, specialists.hear])
    stages = Stages(
        head=[transport.input(), *sight.stages, *front.echo, VoiceActivity(vad)],
        # Words come from the service: features of them are perceived after the turns.
        turns=[model.typed, user, perception],
        speech=[thought, tts, model.gate, service, model.replies],
        playout=[entry, transport.output(), exit_],
        tail=[HeardAssistantAggregator(user.context, user)],
        # Its frames come again from the replies.
        unseen=[service],
    )
    ending = ServiceEnding(call, model.gate, engines.deployment.thinking.guard.apology)
    ending.follow(service, row.name)
    allowance = ServiceAllowance(engines, call, ending)
    worker = build(
        engines,
        transport,
        call,
        stages,
        output_rate_hz=CLOUD_VOICE_RATE_HZ,
        refuses_text=text_refusal(row),
        take_typed=allowance.take_typed,
        greets=False,
    )
    publish_service_turns(events, user, call.live.input.flush)
    begins = ServiceStart(call, start, watch, service_announcements(engines, call, model), user.context)
    tasks: Background = [
        *(partial(watch.run, ending.unanswered), ending.run, allowance.run, specialists.run, begins.run)
    ]
    return worker, caller, [*tasks, *sight.background]
